"""Step times composed from kernel tables, worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from kernel_profiles import CORRECTIONS, INTERPOLATION, LIMITS, attention, batch_s, skew_samples, tables
from sklearn.ensemble import RandomForestRegressor

from pipeline.predictor.batch_grid import batch_grid, filled
from pipeline.predictor.corrections import SkewForest
from pipeline.predictor.joint_attention import log_ratio
from pipeline.predictor.kernel_tables import graph_sizes, kernel_step_table
from pipeline.predictor.skew import skew_features, skew_forest
from pipeline.predictor.step_table import from_arrays, to_arrays
from pipeline.predictor.step_time import step_time_s
from pipeline.spec import InputError
from pipeline.values import EngineLimits

LAYERS = 3


def table(predictor=INTERPOLATION, corrections=CORRECTIONS, **changes):
    return kernel_step_table(tables(**changes), LAYERS, LIMITS, predictor, corrections, 0)


def dense_s(tokens: int) -> float:
    """The embedding once, two norms and one projection a layer."""
    return 1.0 + LAYERS * (2 * 10.0 + 100.0 * tokens)


def test_a_decode_step_adds_layers_head_and_attention():
    # Two requests with 20 and 30 tokens, of which 19 and 29 are cached.
    found, outside_s = step_time_s(table(), 0, 0.0, 2, 50.0, 2, 20**2 + 30**2, 30)
    assert found == pytest.approx(dense_s(2) + 0.5 + LAYERS * batch_s(0, 0, 2, 24))
    assert outside_s == 0.0


def test_a_small_step_is_padded_to_its_cuda_graph():
    # Three tokens are computed as four; seventeen, beyond twice eight requests, are not padded.
    assert step_time_s(table(), 0, 0.0, 3, 51.0, 0)[0] == pytest.approx(dense_s(4) + LAYERS * batch_s(0, 0, 3, 16))
    assert step_time_s(table(), 17, 17 * 8.5, 0, 0.0, 0)[0] == pytest.approx(dense_s(17) + LAYERS * 17)


@pytest.mark.parametrize(("running", "last"), [(1, 2), (8, 16), (128, 256), (256, 512), (1000, 512)])
def test_graphs_are_captured_to_twice_the_running_requests(running, last):
    sizes = graph_sizes(EngineLimits(tensor_parallel=1, max_running=running, max_batched_tokens=2048))
    assert sizes[-1] == last
    assert sizes.tolist() == sorted(set(sizes.tolist()))


def test_several_chunks_stand_as_one_of_equal_pairs():
    # 16 tokens on 32 cached, and 16 on none: 32 tokens with 16 (32 + 8) + 16 x 8 = 768 pairs, so 8 cached.
    pairs = 16 * (32 + 8) + 16 * 8
    found = step_time_s(table(), 32, float(pairs), 1, 17.0, 0)[0]
    assert found == pytest.approx(dense_s(33) + LAYERS * batch_s(32, 8, 1, 16))


def test_chunks_with_fewer_pairs_than_one_save_most_of_them():
    # Two of 16 on none: 256 pairs instead of 512.
    for share in (0.9, 0.5):
        saving = table(corrections=CORRECTIONS.model_copy(update={"saved_share_ratio": share}))
        found = step_time_s(saving, 32, 256.0, 0, 0.0, 0)[0]
        assert found == pytest.approx(dense_s(32) + LAYERS * batch_s(32, 0, 0, 0) * (1 - share / 2))


def test_a_prefill_step_takes_its_overhead():
    slower = table(corrections=CORRECTIONS.model_copy(update={"prefill_step_s": 7.0}))
    assert step_time_s(slower, 16, 128.0, 0, 0.0, 0)[0] - step_time_s(table(), 16, 128.0, 0, 0.0, 0)[0] == 7.0
    assert step_time_s(slower, 0, 0.0, 1, 17.0, 1) == step_time_s(table(), 0, 0.0, 1, 17.0, 1)


def test_beyond_the_profile_time_goes_on_and_is_counted():
    found, outside_s = step_time_s(table(), 16, 16 * (128 + 8.0), 0, 0.0, 0)
    assert outside_s == pytest.approx(LAYERS * batch_s(16, 128, 0, 0))
    assert found == pytest.approx(dense_s(16) + outside_s)
    assert step_time_s(table(), 100, 5000.0, 0, 0.0, 0)[1] == pytest.approx(dense_s(100) + LAYERS * 100)


def test_a_batch_that_was_not_measured_costs_its_parts_times_the_ratio_around_it():
    rows = attention(skipped=lambda q, k, d, c: q > 0 and d == 8)
    both = (rows[:, 0] > 0) & (rows[:, 2] > 0)
    rows[both, 4] *= 1.5
    grids, grid = batch_grid(rows)
    assert [values.tolist() for values in grids] == [[0, 16, 32, 64], [0, 16, 64], [0, 1, 4, 8], [16, 64, 256]]
    assert not np.isnan(grid).any()
    assert grid[1, 1, 2, 0] == pytest.approx(1.5 * batch_s(16, 16, 4, 16))
    assert grid[1, 1, 3, 0] == pytest.approx(1.5 * batch_s(16, 16, 8, 16))


def test_a_hole_is_filled_between_its_neighbours():
    values = np.array([[1.0, 2.0, 3.0], [2.0, np.nan, 4.0], [3.0, 4.0, np.nan]])
    grid = np.array([0.0, 1.0, 3.0])
    assert filled(values, [grid, grid])[1, 1] == pytest.approx(3.0)
    assert filled(values, [grid, grid])[2, 2] == 4.0


def test_a_profile_without_batches_of_both_is_refused():
    with pytest.raises(InputError, match="given no batches of both together"):
        batch_grid(attention(skipped=lambda q, k, d, c: q > 0 and d > 0))


def test_the_look_up_of_the_forest_is_the_forest():
    samples = skew_samples()
    trees, roots = skew_forest(samples, SkewForest(trees=7, min_leaf_samples=2), 5)
    joint = table().joint._replace(trees=trees, roots=roots)
    features = skew_features(samples)
    target = np.log(samples.skewed_s / samples.even_s)
    even = features[np.random.Generator(np.random.Philox(key=[5, 0])).permutation(300)[:150]].copy()
    even[:, 5], even[:, 6] = 0.0, 1.0
    forest = RandomForestRegressor(n_estimators=7, min_samples_leaf=2, random_state=5)
    forest.fit(np.concatenate([features, even]), np.concatenate([target, np.zeros(150)]))
    found = [log_ratio(joint, row) for row in features.astype(np.float32)]
    np.testing.assert_allclose(found, forest.predict(features), rtol=1e-12)


def test_unequal_decodes_are_slower_and_equal_ones_are_not():
    skewed, plain = table(skew=skew_samples()), table()
    equal = (0, 0.0, 4, 4 * 50.0, 4, 4 * 50**2, 50)
    unequal = (0, 0.0, 4, 3 * 30 + 110.0, 4, 3 * 30**2 + 110**2, 110)
    assert step_time_s(skewed, *equal) == step_time_s(plain, *equal)
    part_s = LAYERS * batch_s(0, 0, 4, 49)
    slower = 1 + (step_time_s(skewed, *unequal)[0] - step_time_s(plain, *unequal)[0]) / part_s
    assert slower == pytest.approx(1 + 0.1 * 110 / 30, rel=0.05)


def test_a_composed_table_survives_writing():
    whole = table(skew=skew_samples())
    back = from_arrays(to_arrays(whole))
    step = (16, 200.0, 4, 200.0, 5, 3 * 30**2 + 110**2, 110)
    assert step_time_s(back, *step) == step_time_s(whole, *step)
