"""The compiled look-up: cells, several prompts in a step, what lies outside the profile, writing and reading."""

from pathlib import Path

import numpy as np
import pytest

from pipeline.predictor.bins import bin_edges, bin_numbers
from pipeline.predictor.step_table import (
    StepTable,
    constant_step_table,
    from_arrays,
    linear_step_table,
    to_arrays,
)
from pipeline.predictor.step_time import cell, pack, prefill_step_attention_s, step_time_s
from pipeline.tables import read_arrays, write_arrays


def small_table() -> StepTable:
    """dense 1 ms per token to 4, 2 ms per token beyond; logits 10 ms; prefill 1 s per pair, doubled over 8 new or
    cached tokens; decode 1 s per context token; profiled to 4 tokens, 2 sequences, 4 new, 12 in all, 2 x 16."""
    return StepTable(
        dense_s=np.array([0.0, 0.001, 0.002, 0.003, 0.004]),
        dense_slope_s=0.002,
        logits_s=np.array([0.0, 0.01, 0.01]),
        logits_slope_s=0.0,
        prefill_coefficients=np.array([0.0, 0.0, 1.0, 0.0]),
        prefill_new_edges=np.array([8.0]),
        prefill_cached_edges=np.array([8.0]),
        prefill_ratio=np.array([[1.0, 2.0], [2.0, 2.0]]),
        decode_coefficients=np.array([0.0, 0.0, 1.0]),
        decode_count_edges=np.zeros(0),
        decode_context_edges=np.zeros(0),
        decode_ratio=np.ones((1, 1)),
        profiled=np.array([4.0, 2.0, 4.0, 12.0, 2.0, 16.0]),
    )


def test_a_step_adds_its_operations() -> None:
    time_s, outside_s = step_time_s(small_table(), 2, 2 * (3 + 1.0), 1, 5.0, 2)
    assert time_s == pytest.approx(0.003 + 0.01 + 8.0 + 5.0)
    assert outside_s == 0.0


@pytest.mark.parametrize(
    ("step", "outside_s"),
    [
        ((6, 6 * 3.0, 0, 0.0, 1), 0.004 + 2 * 0.002 + 0.01 + 18.0),  # too many tokens, and new ones
        ((4, 4 * (9 + 2.0), 0, 0.0, 1), 2 * 44.0),  # 13 tokens of context: attention alone is outside
        ((4, 4 * (8 + 2.0), 0, 0.0, 1), 0.0),  # 12 are inside
        ((0, 0.0, 1, 17.0, 1), 17.0),  # decode context
        ((0, 0.0, 3, 3.0, 1), 3.0),  # decoding requests
        ((0, 0.0, 1, 1.0, 3), 0.001 + 0.01),  # sequences: dense and logits
    ],
)
def test_time_outside_the_profile_is_told_apart(step: tuple, outside_s: float) -> None:
    assert step_time_s(small_table(), *step)[1] == pytest.approx(outside_s)


def test_one_prompt_of_several_chunks_is_exact_and_several_prompts_save_their_missing_pairs() -> None:
    table = linear_step_table(0.01, 1e-4, 1e-6, 0.0)
    two_prompts, _ = step_time_s(table, 200, 2 * 100 * 50.0, 0, 0.0, 2)
    assert two_prompts == pytest.approx(0.01 + 200 * 1e-4 + 10_000 * 1e-6)
    with_cache, _ = step_time_s(table, 200, 100 * 50.0 + 100 * (500 + 50.0), 0, 0.0, 2)
    assert with_cache == pytest.approx(0.01 + 200 * 1e-4 + 60_000 * 1e-6)


def test_many_short_prompts_take_at_least_one_of_their_length() -> None:
    table = small_table()._replace(prefill_ratio=np.array([[1.0, 1.0], [0.1, 0.1]]))
    assert prefill_step_attention_s(pack(table), 100.0, 100 * 2.0)[0] == pytest.approx(
        4 * 2.0
    )  # one prompt of 4 tokens


def test_a_value_on_an_edge_belongs_below_it_as_in_a_tree() -> None:
    edges = bin_edges(5000)
    values = np.concatenate([edges, edges + 1e-9, [0, 1, 17, 4999.5, 1e9]])
    assert [cell(edges, value) for value in values] == bin_numbers(edges, values).astype(int).tolist()
    assert cell(np.array([1.5, 2.5]), 1.5) == 0
    assert cell(np.array([1.5, 2.5]), 1.6) == 1


def test_bins_are_every_number_first_and_six_percent_then() -> None:
    edges = bin_edges(131072)
    assert edges[:12].tolist() == [0.5, 1.5, 2.5, 3.5, 4.5, 5.5, 6.5, 7.5, 8.5, 9.5, 10.5, 11.5]
    assert (np.diff(edges) > 0).all()
    wide = edges[edges > 64]
    assert (wide[1:] / wide[:-1]).max() < 1.08
    assert edges[-1] < 131072
    assert bin_edges(1).tolist() == [0.5]


def test_a_table_survives_writing_and_reading(tmp_path: Path) -> None:
    table = small_table()
    write_arrays(tmp_path / "step_table.npz", to_arrays(table))
    back = from_arrays(read_arrays(tmp_path / "step_table.npz"))
    assert isinstance(back.dense_slope_s, float)
    for name, value in to_arrays(table).items():
        np.testing.assert_array_equal(to_arrays(back)[name], value)
    step = (3, 12.0, 1, 9.0, 2)
    assert step_time_s(back, *step) == step_time_s(table, *step)


def test_a_constant_plant_takes_the_same_for_every_step() -> None:
    table = constant_step_table(0.25)
    for step in ((1, 0.5, 0, 0.0, 1), (8192, 8192 * 4096.0, 256, 1e6, 300), (0, 0.0, 1, 10.0, 1), (9, 9.0, 0, 0.0, 2)):
        assert step_time_s(table, *step) == (0.25, 0.0)
