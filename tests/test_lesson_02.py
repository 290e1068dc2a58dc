"""Lesson 02: what it says of its runs holds, and each exercise says what is wrong with an answer."""

import math

import pytest
import torch

from recompute_lab.lessons.early_warning import HIGH, LOW, STATISTICS, Told, pairs, past, quiet_threshold, told
from recompute_lab.lessons.exercise import NOT_ATTEMPTED, RIGHT, WRONG
from recompute_lab.lessons.odds_and_warnings import EARLIEST, HELD_OUT, check, simulated
from recompute_lab.specimens.training import Step


def unfilled(*arguments): ...


def g(p, n):
    return 1 - (1 - p) ** n


def steps_needed(p, segments, ranks):
    return math.log(0.5) / (segments * ranks * math.log1p(-p))


RIGHT_ANSWERS = {
    "odds": lambda p, n: 2 * g(p, n) * (1 - g(p, n)),
    "early_warning": lambda history: history[-1].near > 0,
    "even_odds": lambda p, segments, ranks: math.ceil(steps_needed(p, segments, ranks)),
}

WRONG_ANSWERS = [
    ("odds", lambda p, n: 2 * p * (1 - p), "that is one position's"),
    ("odds", g, "how often the guard is true in one pass"),
    ("odds", lambda p, n: n * 2 * p * (1 - p), "that adds up n positions"),
    ("odds", lambda p, n: 1 - (1 - 2 * p * (1 - p)) ** n, "how often any position flips"),
    ("odds", lambda p, n: g(p, n) * (1 - g(p, n)), "the other way round counts as well"),
    ("odds", lambda p, n: 0.3, "disagree, you said 0.3"),
    ("odds", lambda p, n: min(0.5, 2 * g(p, n) * (1 - g(p, n)) + (p == 1)), "every position always is"),
    ("odds", lambda p, n: "half", "expected a number, got 'half'"),
    ("odds", 0.5, "expected a function odds(p, n)"),
    ("odds", lambda p: p, "your answer raised TypeError"),
    ("early_warning", lambda history: True, "an alarm at step 0"),
    ("early_warning", lambda history: False, "no alarm in a run that died"),
    ("early_warning", lambda history: history[-1].capped > 0, "too late: the first alarm came at step"),
    ("early_warning", lambda history: math.isnan(history[-1].gradient), "too late: the first alarm came at step"),
    ("early_warning", lambda history: history[-1].mean > 0.25, "tells the two caps apart"),
    ("early_warning", lambda history: len(history) > 17, "a false alarm at step 17 of a run that lived"),
    ("early_warning", lambda history: history[-1].loss < 2.0, "a false alarm at step"),
    ("early_warning", lambda history: "yes", "should return True or False"),
    ("early_warning", lambda history: history.capped, "your answer raised AttributeError"),
    ("early_warning", True, "expected a function warn(history)"),
    ("even_odds", lambda p, segments, ranks: math.ceil(1 / (2 * p * segments * ranks)), "which is less than 1/2"),
    ("even_odds", lambda p, segments, ranks: math.floor(steps_needed(p, segments, ranks)), "which is less than 1/2"),
    ("even_odds", lambda p, segments, ranks: math.ceil(steps_needed(p, 1, ranks)), "are enough already"),
    ("even_odds", lambda p, segments, ranks: math.ceil(steps_needed(p, segments, 1)), "are enough already"),
    ("even_odds", steps_needed, "expected a whole number"),
    ("even_odds", lambda p, segments, ranks: 0, "at least one step"),
    ("even_odds", 7, "expected a function"),
    ("even_odds", lambda p, segments, ranks: 10**400, "steps are enough already"),
    ("odds", lambda p, n: 10**400, "expected a number, got 1000"),
    ("odds", lambda p, n: 2 * g(p, n) * (1 - g(p, n)) * 1.001, "one position: "),
]


@pytest.mark.parametrize("name", check.all)
def test_a_right_answer_passes(name):
    assert check.all[name].judge(RIGHT_ANSWERS[name]).status == RIGHT


def test_the_right_formula_is_right_in_float32_too():
    assert check.odds.judge(lambda p, n: RIGHT_ANSWERS["odds"](torch.tensor(p), n)).status == RIGHT


@pytest.mark.parametrize("name, answer, message", WRONG_ANSWERS)
def test_a_wrong_answer_is_told_why(name, answer, message):
    verdict = check.all[name].judge(answer)
    assert verdict.status == WRONG
    assert message in verdict.message


@pytest.mark.parametrize("name", check.all)
def test_each_exercise_has_two_wrong_answers_hints_and_a_stub(name):
    assert sum(wrong[0] == name for wrong in WRONG_ANSWERS) >= 2
    assert len(check.all[name].hints) >= 2
    assert check.all[name].judge(unfilled).status == NOT_ATTEMPTED


@pytest.mark.parametrize("threshold", [0.75, 0.8, 0.9])
def test_a_warning_by_the_largest_ratio_is_right_too(threshold):
    assert check.early_warning.judge(lambda history: history[-1].largest > threshold).status == RIGHT


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
