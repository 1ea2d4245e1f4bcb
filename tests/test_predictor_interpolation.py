"""Interpolation: through every sample, and between them what can be worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from kernel_profiles import CORRECTIONS, INTERPOLATION, LIMITS, attention, line, tables

from pipeline.predictor.baseline import terms
from pipeline.predictor.batch_grid import batch_grid
from pipeline.predictor.bins import bin_edges, bin_middles, bin_numbers
from pipeline.predictor.features import OperationSamples
from pipeline.predictor.fitted import fit
from pipeline.predictor.kernel_tables import kernel_step_table


def column(*values: float) -> np.ndarray:
    return np.array(values, float)[:, None]


def learnt(features: np.ndarray, *ratios: float):
    regressor = INTERPOLATION.regressor(0, features.shape[1])
    regressor.fit(features, np.log(ratios))
    return lambda wanted: np.exp(regressor.predict(wanted))


def test_by_a_count_the_ratio_is_linear_in_it_and_constant_beyond():
    ratio = learnt(column(20, 10, 40), 2.0, 1.0, 1.0)
    np.testing.assert_allclose(ratio(column(5, 10, 15, 20, 25, 40, 99)), [1.0, 1.0, 1.5, 2.0, 1.75, 1.0, 1.0])


def test_samples_at_one_place_count_as_their_mean():
    np.testing.assert_allclose(learnt(column(1, 1, 3), 1.0, 2.0, 3.5)(column(1, 2)), [1.5, 2.5])


def test_by_two_inputs_the_ratio_is_linear_in_their_logarithms_and_that_of_the_nearest_beyond():
    # log2(1 + x) of 0, 1, 3, 7, 15 is 0, 1, 2, 3, 4; up to 15 the bins hold one number each.
    corners = np.array([[1.0, 0.0], [7.0, 0.0], [1.0, 15.0], [7.0, 15.0]])
    ratio = learnt(corners, 1.0, 3.0, 5.0, 7.0)
    wanted = np.array([[3.0, 0.0], [1.0, 3.0], [3.0, 3.0], [7.0, 15.0], [15.0, 0.0], [0.0, 16.0]])
    np.testing.assert_allclose(ratio(wanted), [2.0, 3.0, 4.0, 7.0, 3.0, 5.0])


def test_samples_in_one_line_have_no_plane_between_them():
    diagonal = np.array([[1.0, 1.0], [3.0, 3.0], [7.0, 7.0], [15.0, 15.0]])
    np.testing.assert_allclose(learnt(diagonal, 1.0, 2.0, 3.0, 4.0)(np.array([[1.0, 2.0], [14.0, 15.0]])), [1.0, 4.0])


def test_the_middle_of_a_bin_lies_between_its_edges():
    edges = bin_edges(5000.0)
    for value in (0.0, 1.0, 17.0, 100.0, 4000.0):
        number = bin_numbers(edges, np.array([value]))
        low, high = np.append(-0.5, edges)[int(number[0])], edges[int(number[0])]
        assert bin_middles(number)[0] == pytest.approx((low + high) / 2)


def test_a_fit_goes_through_its_samples_and_halfway_has_the_mean_ratio():
    samples = OperationSamples("dense", column(10, 20, 30, 50, 60), np.array([1.0, 3.0, 2.0, 9.0, 4.0]))
    fitted = fit(samples, INTERPOLATION.regressor(0, 1))
    np.testing.assert_allclose(fitted.time_s(samples.inputs), samples.time_s)
    baseline = terms("dense", column(20, 30, 25)) @ fitted.coefficients
    halfway = baseline[2] * (3.0 / baseline[0] + 2.0 / baseline[1]) / 2
    assert fitted.time_s(column(25))[0] == pytest.approx(halfway)
    plane = OperationSamples(
        "attention_prefill", np.array([[q, k] for q in (1.0, 4.0, 9.0) for k in (0.0, 5.0)]), np.arange(1.0, 7.0)
    )
    np.testing.assert_allclose(fit(plane, INTERPOLATION.regressor(0, 2)).time_s(plane.inputs), plane.time_s)


def test_kernel_tables_are_interpolated_themselves():
    rows = np.array([[1.0, 5.0], [4.0, 11.0], [2.0, 7.0]])
    # Between 2 and 4 it rises by 2 a count, and goes on so.
    time_s, slope_s = INTERPOLATION.layer_s(rows, np.array([0.0, 1.0, 3.0, 4.0, 6.0]), 0)
    assert (time_s.tolist(), slope_s) == ([5.0, 5.0, 9.0, 11.0, 15.0], 2.0)
    assert INTERPOLATION.layer_s(rows[:1], np.array([9.0]), 0) == (5.0, 0.0)


def test_the_table_of_a_kernel_profile_is_that_of_its_measurements_byte_by_byte():
    rows = attention(skipped=lambda q, k, d, c: q == 32 and d == 4 and c == 64)
    found = kernel_step_table(tables(attention=rows), 3, LIMITS, INTERPOLATION, CORRECTIONS, 0)
    grids, time_s = batch_grid(rows)
    assert found.joint.time_s.tobytes() == (time_s * 3).tobytes()
    axes = (found.joint.new, found.joint.cached, found.joint.decodes, found.joint.context)
    assert [grid.tobytes() for grid in grids] == [axis.tobytes() for axis in axes]
    counts = np.arange(65.0)
    by_layer = [(1, line(1.0, 0.0)), (6, line(10.0, 0.0)), (3, line(0.0, 100.0))]
    dense_s = sum(occurs * np.interp(counts, *rows.T) for occurs, rows in by_layer)
    assert found.dense_s[17:].tobytes() == dense_s[17:].tobytes()  # up to 16 tokens steps are padded
    assert (found.dense_slope_s, found.joint.saved_share) == (300.0, 0.9)
