"""Lesson 02: what it says of its runs holds."""

import pytest

from recompute_lab.lessons.early_warning import HIGH, LOW, STATISTICS, Told, pairs, past, quiet_threshold, told
from recompute_lab.lessons.odds_and_warnings import EARLIEST, HELD_OUT, simulated
from recompute_lab.specimens.training import Step


def test_simulated_pairs_are_the_same_every_time():
    assert simulated(0.05, 10) == simulated(0.05, 10) != simulated(0.05, 10, seed=1)
    assert simulated(0.0, 10) == simulated(1.0, 10) == 0


# --- The runs


@pytest.fixture(scope="module")
def held_out() -> list[Told]:
    return pairs((6, 7, 8))


def test_the_low_cap_dies_and_the_high_one_lives(held_out):
    for run in [*held_out, *pairs(HELD_OUT)]:
        assert run.died == (run.limit == LOW)
        assert (run.history[-1].capped > 0) == run.died
        assert not any(step.capped for step in run.history[:-1])


def test_twins_are_one_run_until_a_vector_is_capped(held_out):
    for low, high in zip(held_out[::2], held_out[1::2], strict=True):
        assert (low.seed, low.limit, high.limit) == (high.seed, LOW, HIGH)
        for a, b in zip(low.history[:-1], high.history, strict=False):
            assert (a.loss, a.gradient) == (b.loss, b.gradient)


@pytest.mark.parametrize("name", STATISTICS)
def test_the_lesson_says_of_each_statistic_what_is_so(name, held_out):
    alarm = past(STATISTICS[name], quiet_threshold(STATISTICS[name], pairs((0, 1, 2))))
    leads = [run.lead(alarm) for run in held_out if run.died]
    expected = {
        "loss, falling": lambda lead: lead is None,
        "gradient norm": lambda lead: lead is None,
        "mean ratio / cap": lambda lead: lead > EARLIEST,
        "largest ratio / cap": lambda lead: lead > 0,
        "vectors near the cap": lambda lead: 0 < lead <= EARLIEST,
        "vectors capped": lambda lead: lead == 0,
    }
    assert len(leads) == 3 and all(map(expected[name], leads)), leads


def test_a_run_is_trained_once():
    assert told(6, LOW) is told(6, LOW)


def test_the_lead_counts_back_from_the_last_step():
    run = Told(0, LOW, tuple(Step(n, 0, n) for n in range(10)), True)
    assert run.lead(lambda history: history[-1].near >= 7) == 2
    assert run.lead(lambda history: history[-1].near >= 9) == 0
    assert run.lead(lambda history: len(history) > 10) is None


def test_a_threshold_is_quiet_in_runs_that_lived_and_ignores_those_that_died():
    lived, died = (Told(0, HIGH, tuple(Step(n, 0, near) for n, near in enumerate((1, 4, top))), d)
                   for top, d in ((3, False), (9, True)))  # fmt: skip
    threshold = quiet_threshold(STATISTICS["vectors near the cap"], [lived, died])
    assert threshold == 4
    assert lived.lead(past(STATISTICS["vectors near the cap"], threshold)) is None
    assert died.lead(past(STATISTICS["vectors near the cap"], threshold)) == 0
