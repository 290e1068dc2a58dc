"""The exercise on momentum: the right formula passes, each wrong one fails with the message that helps."""

import math

import pytest
import torch

from recompute_lab.lessons.exercise import NOT_ATTEMPTED, RIGHT, WRONG
from recompute_lab.lessons.writes_exercises import check
from recompute_lab.repairs.momentum import momentum_for


def told(answer, status=WRONG) -> str:
    verdict = check.momentum.judge(answer)
    assert verdict.status == status, verdict
    return verdict.message


@pytest.mark.parametrize(
    "answer",
    [
        momentum_for,
        lambda m, updates: 1 - (1 - m) ** (1 / updates),
        lambda m, updates: torch.tensor(1 - math.exp(math.log1p(-m) / updates)),
    ],
)
def test_the_right_formula_passes_however_it_is_written(answer):
    assert "up to rounding" in told(answer, RIGHT)


@pytest.mark.parametrize(
    ("answer", "where", "why"),
    [
        (lambda m, updates: math.sqrt(m), "2 updates per step: with momentum 0.316", "the root of m, the weight"),
        (lambda m, updates: m ** (1 / updates), "2 updates per step: with momentum 0.316", "the root of m, the weight"),
        (lambda m, updates: m / 2, "with momentum 0.05", "Near, and nearer the smaller m is"),
        (lambda m, updates: 1 - (1 - m) ** 2, "with momentum 0.19", "That is the way back"),
        (lambda m, updates: 0.0, "with momentum 0 ", "nothing is ever written"),
        (lambda m, updates: m, "with momentum 0.1", "That is m itself"),
        (lambda m, updates: math.sqrt(1 - m), "with momentum 0.949", "the share to keep"),
        (lambda m, updates: 1 - math.sqrt(1 - m), "m = 0.1, 3 updates per step", "right for two updates"),
        (lambda m, updates: 0.3, "with momentum 0.3", "What share of the old value do the updates keep"),
    ],
)
def test_a_wrong_formula_is_measured_and_told_why(answer, where, why):
    message = told(answer)
    assert where in message and why in message and "part from the plain run's by up to" in message


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (0.05, "give a function"),
        (lambda m, updates: "0.05", "momentum(0.1, 2) gave '0.05'; a number was expected"),
        (lambda m, updates: True, "a number was expected"),
        (lambda m, updates: torch.ones(2), "a number was expected"),
        (lambda m, updates: -0.1, "from 0 to 1"),
        (lambda m, updates: math.nan, "from 0 to 1"),
        (lambda m: m, "TypeError"),
    ],
)
def test_what_is_no_momentum_is_told(answer, said):
    assert said in told(answer)


def test_a_stub_is_not_attempted():
    def momentum(m, updates): ...

    told(momentum, NOT_ATTEMPTED)
