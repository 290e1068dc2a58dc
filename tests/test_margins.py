"""Distances in ulps, and what a guard makes of them at every cap."""

import math

import numpy as np
import pytest
import torch

from recompute_lab.instruments.margins import Margins, ulps_above, ulps_from
from recompute_lab.instruments.nondeterminism import Nudge
from recompute_lab.instruments.odds import binomial_interval, passes_disagree
from recompute_lab.specimens.on_the_threshold import LIMIT, OnTheThreshold


@pytest.mark.parametrize("reference", [1.0, 1.5, 1e-30, 3e30])
def test_distances_are_numbers_of_steps_to_the_next_float(reference):
    values, value = [], np.float32(reference)
    for _ in range(5):
        values.append(float(value))
        value = np.nextafter(value, np.float32(np.inf))
    assert ulps_above(torch.tensor(values), reference).tolist() == [0, 1, 2, 3, 4]
    below = float(np.nextafter(np.float32(reference), np.float32(0)))
    assert ulps_above(torch.tensor(below), reference).item() == -1


def test_a_step_is_half_as_large_below_a_power_of_two():
    assert ulps_above(torch.tensor([1 + 2**-23, 1 - 2**-24]), 1.0).tolist() == [1, -1]


@pytest.mark.parametrize("ulps", [-1000, -1, 0, 1, 70_000])
def test_ulps_from_is_the_inverse(ulps):
    assert ulps_above(torch.tensor(ulps_from(LIMIT, ulps)), LIMIT).item() == ulps


@pytest.mark.parametrize("ulps", [-0x3FC00001, 2**30, 2**31, 2**40, -(2**31)])
def test_steps_out_of_the_finite_numbers_are_refused(ulps):
    with pytest.raises(ValueError, match="lead out of the finite float32"):
        ulps_from(LIMIT, ulps)
    assert ulps_from(LIMIT, -0x3FC00000) == 0.0


@pytest.mark.parametrize("reference", [0.0, -1.0, math.nan, math.inf])
def test_steps_are_taken_from_a_positive_number(reference):
    with pytest.raises(ValueError, match="from a positive number"):
        ulps_from(reference, 1)


def test_a_part_of_a_step_is_no_step():
    with pytest.raises(TypeError):
        ulps_from(LIMIT, 1.5)


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int32])
def test_a_cap_may_be_larger_than_the_distances_dtype(dtype):
    margins = Margins(torch.tensor([[1], [0]], dtype=dtype))
    for cap, true in ((2**40, 0), (200, 0), (-1, 2), (-(2**40), 2)):
        assert (margins.at(cap).firing, margins.at(cap).true) == (true / 2, true)


def test_zero_and_other_dtypes():
    zeros = ulps_above(torch.tensor([0.0, -0.0]), 1.0)
    assert zeros.tolist() == [-0x3F800000] * 2
    assert ulps_above(torch.tensor([1.5], dtype=torch.bfloat16), 1.5).tolist() == [0]


@pytest.mark.parametrize("value", [-1.0, math.nan, math.inf])
def test_values_that_are_no_lengths_are_refused(value):
    with pytest.raises(ValueError, match="not negative"):
        ulps_above(torch.tensor([1.0, value]), 1.0)


@pytest.mark.parametrize("reference", [0.0, -1.0, math.nan, math.inf])
def test_a_reference_that_is_not_positive_is_refused(reference):
    with pytest.raises(ValueError, match="from a positive number"):
        ulps_above(torch.ones(1), reference)


@pytest.mark.parametrize("shape", [(1, 3), (4, 0), (4,), (2, 2, 2)])
def test_margins_need_two_passes_and_a_position(shape):
    with pytest.raises(ValueError, match="two passes at least"):
        Margins(torch.zeros(shape, dtype=torch.int64))


SMALL = Margins(torch.tensor([[0, 2], [1, 1], [3, 0], [3, 3], [0, 0]]))  # the fifth pass has no partner


@pytest.mark.parametrize(
    "cap, firing, true, disagreed", [(-1, 1.0, 5, 0), (0, 0.6, 4, 0), (1, 0.4, 3, 1), (2, 0.3, 2, 0), (3, 0, 0, 0)]
)
def test_the_curve_of_a_small_example(cap, firing, true, disagreed):
    curve = SMALL.at(cap)
    assert (curve.cap, curve.firing, curve.true, curve.passes) == (cap, firing, true, 5)
    assert (curve.disagreed, curve.pairs) == (disagreed, 2)


def test_the_expectation_of_the_small_example():
    assert SMALL.expected_alike(2) == pytest.approx(1 - (1 - 0.3) ** 2)


def test_each_point_of_a_sweep_is_what_counting_one_by_one_gives():
    distances = torch.randint(-5, 6, (40, 7), generator=torch.Generator().manual_seed(0))
    for curve in Margins(distances).sweep(range(-7, 8)):
        past = distances > curve.cap
        fires = [bool(row.any()) for row in past]
        assert curve.firing == pytest.approx(past.double().mean().item())
        assert curve.true == sum(fires)
        assert curve.disagreed == sum(a != b for a, b in zip(fires[::2], fires[1::2], strict=True))


def test_measure_calls_once_per_pass_and_takes_any_shape():
    calls = iter(torch.full((2, 3), value) for value in (1.0, 1.5, 2.0))
    margins = Margins.measure(lambda: next(calls), 3, 1.5)
    assert (margins.passes, margins.positions) == (3, 6)
    assert margins.distances[1].tolist() == [0] * 6


@pytest.mark.parametrize("positions", [1, 16, 256])
def test_staged_noise_agrees_with_the_closed_form(positions):
    measured = Margins.measure(OnTheThreshold(positions, Nudge(8, seed=3)).ratios, 400, LIMIT)
    for curve in measured.sweep(range(-9, 13)):
        low, high = binomial_interval(curve.disagreed, curve.pairs, 0.9999)
        slack = 0.03  # the share of positions past the cap is itself measured, for one position from 400 passes
        assert low - slack <= passes_disagree(curve.firing, positions) <= high + slack


def test_only_caps_within_the_largest_distances_let_passes_disagree():
    measured = Margins.measure(OnTheThreshold(64, Nudge(8, seed=4)).ratios, 200, LIMIT)
    low, high = int(measured.largest.min()), int(measured.largest.max())
    assert low < high
    assert not any(curve.disagreed for curve in measured.sweep([*range(-30, low), *range(high, 30)]))
