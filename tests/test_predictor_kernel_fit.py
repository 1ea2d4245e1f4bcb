"""Kernel tables learnt: fitted batches and layers, and how well they are known from a part of their rows."""

from __future__ import annotations

import numpy as np
import pytest
from hardware_options import predictor_of
from kernel_profiles import CORRECTIONS, INTERPOLATION, LIMITS, attention, line, tables

from pipeline.predictor.base import Predictor
from pipeline.predictor.features import held_out
from pipeline.predictor.interpolation import Interpolation
from pipeline.predictor.kernel_accuracy import kernel_accuracy
from pipeline.predictor.kernel_tables import kernel_step_table
from pipeline.spec import InputError

ROOFLINE = predictor_of("roofline")


def physical_s(q, k, d, c):
    """Each kind of batches with terms of its own, (n,) each."""
    both = 3.0 + 2 * q + q * (k + q / 2) / 64 + (q + k) / 8 + d / 2 + d * c / 16
    alone = np.where(q > 0, 1.0 + q + q * (k + q / 2) / 32, 2.0 + d / 4 + d * c / 32)
    return np.where((q > 0) & (d > 0), both, alone)


def test_the_roofline_of_batches_is_physical_at_every_point_of_the_grid():
    some = 2.0 ** np.arange(12)
    alone = np.stack(np.meshgrid(some, np.append(0.0, some[1:])), axis=-1).reshape(-1, 2)
    few = np.stack(np.meshgrid(some[3::4], some[1::4], some[2::4], some[1::4]), axis=-1).reshape(-1, 4)
    nothing = np.zeros_like(alone)
    rows = np.concatenate([np.hstack([alone, nothing]), np.hstack([nothing, np.add(alone, [0.0, 1.0])]), few])
    grids, time_s = ROOFLINE.batches_s(np.column_stack([rows, physical_s(*rows.T)]), 0)
    assert [grid[:2].tolist() for grid in grids] == [[0, 1], [0, 2], [0, 1], [1, 2]]
    q, k, d, c = np.meshgrid(*grids, indexing="ij")
    expected_s = np.where((q > 0) | (d > 0), physical_s(q, k * (q > 0), d, c * (d > 0)), 0.0)
    np.testing.assert_allclose(time_s, expected_s, rtol=1e-6)


def test_trees_of_single_samples_give_back_every_batch_that_was_measured():
    rows = attention()
    rows[:, 4] *= np.random.default_rng(1).uniform(1.0, 2.0, len(rows))
    grids, time_s = predictor_of("extra_trees").batches_s(rows, 0)
    for *batch, measured_s in rows:
        at = tuple(np.searchsorted(grid, value) for grid, value in zip(grids, batch, strict=True))
        assert time_s[at] == pytest.approx(measured_s)


def test_a_layer_is_its_physical_line_and_goes_on_along_it():
    time_s, slope_s = ROOFLINE.layer_s(line(5.0, 2.0), np.array([1.0, 30.0, 100.0]), 0)
    np.testing.assert_allclose([*time_s, slope_s], [7.0, 65.0, 205.0, 2.0], rtol=1e-6)
    forest = predictor_of("random_forest")
    stairs = np.column_stack([np.arange(1.0, 9.0), [1, 1, 4, 4, 2, 2, 8, 8]])
    np.testing.assert_allclose(forest.layer_s(stairs, stairs[:, 0], 0)[0], stairs[:, 1])
    (near_s, far_s), slope_s = forest.layer_s(stairs, np.array([5000.0, 6000.0]), 0)
    assert slope_s == pytest.approx((far_s - near_s) / 1000)


def test_a_layer_without_time_stays_so():
    nothing = np.column_stack([np.arange(1.0, 9.0), np.zeros(8)])
    assert ROOFLINE.layer_s(nothing, np.array([3.0]), 0) == (0.0, 0.0)


def test_a_profile_of_one_kind_of_batches_is_refused_by_all():
    for name in ("roofline", "interpolation"):
        with pytest.raises(InputError, match="given no batches of decodes alone"):
            predictor_of(name).batches_s(attention(skipped=lambda q, k, d, c: q == 0), 0)


def test_another_predictor_gives_another_table():
    found = {
        name: kernel_step_table(tables(), 3, LIMITS, predictor_of(name), CORRECTIONS, 0)
        for name in ("random_forest", "extra_trees", "interpolation", "roofline")
    }
    assert len({table.joint.time_s.tobytes() for table in found.values()}) == 4
    assert all(table.joint.time_s.shape == (4 * 3 * 4 * 3,) for table in found.values())
    assert found["roofline"].dense_s[32] != found["interpolation"].dense_s[32]


def seen_by(
    tables_, seed: int = 0, held_out_ratio: float = 0.2
) -> tuple[list[np.ndarray], dict[tuple[str, str], dict]]:
    """Rows that a predictor is given to learn from, and what is said of it."""
    given: list[np.ndarray] = []

    class Noting(Interpolation):
        def layer_s(self, rows, counts, seed):
            given.append(rows)
            return super().layer_s(rows, counts, seed)

        def batches_s(self, rows, seed):
            given.append(rows)
            return super().batches_s(rows, seed)

    noting = Noting(name="noting", held_out_ratio=held_out_ratio)
    said = kernel_accuracy(tables_, noting, seed)
    return given, {(row["operation"], row["split"]): row for row in said}


def test_a_share_of_each_layer_and_kind_of_batches_is_held_out():
    (*layers, batches), said = seen_by(tables())
    # Three layers and the head of 5 rows each; 9 chunks alone, 9 decodes alone, 81 batches of both.
    assert [len(rows) for rows in layers] == [4, 4, 4, 4]
    kinds = [(batches[:, 0] > 0) & (batches[:, 2] == 0), batches[:, 0] == 0, (batches[:, 0] > 0) & (batches[:, 2] > 0)]
    assert [kind.sum() for kind in kinds] == [7, 7, 65]
    counts = {key: row["sample_count"] for key, row in said.items()}
    assert counts == {
        ("dense", "train"): 12, ("dense", "held_out"): 3, ("logits", "train"): 4, ("logits", "held_out"): 1,
        ("attention_prefill", "train"): 7, ("attention_prefill", "held_out"): 2,
        ("attention_decode", "train"): 7, ("attention_decode", "held_out"): 2,
        ("attention_mixed", "train"): 65, ("attention_mixed", "held_out"): 16,
    }  # fmt: skip
    assert {row["against"] for row in said.values()} == {"measured"}
    assert all(said[key]["mape_ratio"] < 1e-9 for key in said if key[1] == "train")
    other, _ = seen_by(tables(), seed=1)
    assert other[-1].tolist() != batches.tolist()
    assert [len(rows) for rows in seen_by(tables(), held_out_ratio=0.999)[0]] == [1, 1, 1, 1, 3]


def test_the_error_is_that_of_what_was_held_out():
    seed = next(s for s in range(99) if held_out(5, 0.2, s, 0)[2])
    counts = np.array([1.0, 2.0, 4.0, 16.0, 64.0])
    dense = {"qkv_proj": np.column_stack([counts, [1.0, 2.0, 8.0, 16.0, 64.0]])}
    said = {(row["operation"], row["split"]): row for row in kernel_accuracy(tables(dense=dense), INTERPOLATION, seed)}
    # Between 2 and 16, where time is the count, 4 is expected to take 4; it takes 8.
    assert said["dense", "held_out"]["mape_ratio"] == pytest.approx(0.5)
    assert said["dense", "held_out"]["p95_error_ratio"] == pytest.approx(0.5)


def test_batches_are_compared_as_the_look_up_gives_them():
    rows = attention()
    both = (rows[:, 0] > 0) & (rows[:, 2] > 0)
    held = np.zeros(len(rows), bool)
    held[np.flatnonzero(both)[held_out(int(both.sum()), 0.2, 0, 6)]] = True  # after four layers and two kinds
    rows[held, 4] *= 4.0  # the ratio around them is 1: some quarter of their time is expected
    said = {(row["operation"], row["split"]): row for row in kernel_accuracy(tables(attention=rows), INTERPOLATION, 0)}
    assert said["attention_mixed", "held_out"]["mape_ratio"] == pytest.approx(0.75, abs=0.05)


def test_too_little_to_hold_any_out_is_left_out():
    few = tables(
        per_sequence={"lm_head": line(0.5, 0.0, 8)[:4], "sampler": np.column_stack([np.arange(9.0), np.zeros(9)])},
        attention=attention(skipped=lambda q, k, d, c: (d == 0 and q > 16) or (q == 0 and d > 1)),
    )
    given, said = seen_by(few)
    assert {operation for operation, _ in said} == {"dense", "attention_mixed"}
    assert len(given) == 4
    assert (given[-1][:, 2] == 0).sum() == (given[-1][:, 0] == 0).sum() == 3


def test_of_what_a_predictor_is_only_the_regressor_must_be_said() -> None:
    with pytest.raises(NotImplementedError):
        Predictor(name="none", held_out_ratio=0.5).layer_s(line(1.0, 1.0), np.ones(1), 0)
