"""The closed forms, against other ways to compute the same numbers."""

from fractions import Fraction
from itertools import product
from math import comb

import numpy as np
import pytest
import torch

from recompute_lab.instruments.odds import binomial_interval, dies_within, guard_true, passes_disagree


@pytest.mark.parametrize("positions", [1, 2, 3, 4])
@pytest.mark.parametrize("p", [Fraction(1, 3), Fraction(1, 10), Fraction(9, 10)])
def test_both_forms_are_what_counting_every_outcome_gives(p, positions):
    true = disagree = Fraction(0)
    for forward, again in product(product((False, True), repeat=positions), repeat=2):
        odds = Fraction(1)
        for past in (*forward, *again):
            odds *= p if past else 1 - p
        true += odds * any(forward)
        disagree += odds * (any(forward) != any(again))
    assert guard_true(float(p), positions) == pytest.approx(float(true), rel=1e-12)
    assert passes_disagree(float(p), positions) == pytest.approx(float(disagree), rel=1e-12)


def test_the_edges():
    assert (guard_true(0, 5), guard_true(1, 5), guard_true(1, 0), guard_true(0.3, 0)) == (0, 1, 0, 0)
    assert passes_disagree(0, 5) == passes_disagree(1, 5) == passes_disagree(0.5, 0) == 0
    assert guard_true(0.5, 10**9) == 1 and passes_disagree(0.5, 10**9) == 0


def test_no_chance_is_not_written_with_a_minus():
    assert [str(guard_true(p, n)) for p in (0, 0.0, -0.0) for n in (0, 5)] == ["0.0"] * 6


def test_numbers_of_numpy_do_not_wrap_around():
    assert dies_within(0.1, np.int32(2**30), 4, 4) == 1


def test_a_tiny_probability_is_not_lost_in_rounding():
    assert guard_true(1e-20, 3) == pytest.approx(3e-20, rel=1e-12)
    assert passes_disagree(1e-20, 3) == pytest.approx(6e-20, rel=1e-12)


@pytest.mark.parametrize("positions", [1, 7, 1000])
def test_passes_disagree_in_one_half_at_most_where_the_guard_is_a_fair_coin(positions):
    fair = 1 - 0.5 ** (1 / positions)
    assert passes_disagree(fair, positions) == pytest.approx(0.5)
    assert max(passes_disagree(n / 1000, positions) for n in range(1001)) <= 0.5


def test_a_run_lives_if_every_try_of_every_segment_and_rank_goes_well():
    assert dies_within(0.1, 3, segments=2, ranks=2) == pytest.approx(1 - 0.9**12)
    assert dies_within(0.1, 0) == 0
    assert dies_within(1e-9, 10**6, 24, 64) == pytest.approx(1 - (1 - 1e-9) ** (10**6 * 24 * 64), rel=1e-6)


def at_least(hits: int, trials: int, p: float) -> float:
    return sum(comb(trials, k) * p**k * (1 - p) ** (trials - k) for k in range(hits, trials + 1))


@pytest.mark.parametrize("hits, trials", [(3, 20), (10, 20), (19, 20)])
def test_at_the_ends_of_the_interval_each_tail_holds_half_of_what_is_left(hits, trials):
    low, high = binomial_interval(hits, trials, 0.9)
    assert at_least(hits, trials, low) == pytest.approx(0.05, rel=1e-6)
    assert 1 - at_least(hits + 1, trials, high) == pytest.approx(0.05, rel=1e-6)


def test_the_interval_at_the_edges():
    assert binomial_interval(0, 10)[0] == 0 and binomial_interval(10, 10)[1] == 1
    assert binomial_interval(0, 10)[1] == pytest.approx(1 - 0.025 ** (1 / 10))


def test_the_interval_covers_as_often_as_it_says():
    draws = torch.rand(500, 40, generator=torch.Generator().manual_seed(0)) < 0.2
    ends = [binomial_interval(int(hits), 40) for hits in draws.sum(1)]
    assert sum(low <= 0.2 <= high for low, high in ends) >= 0.95 * 500


@pytest.mark.parametrize("p", [-0.1, 1.1, float("nan")])
def test_what_is_no_probability_is_refused(p):
    for form in (guard_true, passes_disagree, lambda p: dies_within(p, 10)):
        with pytest.raises(ValueError, match="between 0 and 1"):
            form(p)


def test_other_bad_input_is_refused():
    with pytest.raises(ValueError, match="not negative"):
        guard_true(0.5, -1)
    with pytest.raises(ValueError, match="not negative"):
        guard_true(1, float("nan"))
    for wrong in ((-2, -3), (10, -1), (-10, 1, -1)):  # two negative factors make a positive product
        with pytest.raises(ValueError, match="not negative"):
            dies_within(0.1, *wrong)
    with pytest.raises(ValueError, match="at least one trial"):
        binomial_interval(0, 0)
    for hits in (-1, 4):
        with pytest.raises(ValueError, match="between 0 and 3 hits"):
            binomial_interval(hits, 3)
    with pytest.raises(ValueError, match="a confidence lies between 0 and 1"):
        binomial_interval(1, 3, 95)
