"""Lesson 02, the threshold: the odds of a disagreement, an early warning, how long until the odds are even."""

import math
from fractions import Fraction

import numpy as np
import torch
from answers.answers import Answers

from recompute_lab.lessons.odds_and_warnings import check

EXERCISES = check


# --- odds


def g(p, n):
    return 1 - (1 - p) ** n


def two_ways(p, n):
    return 2 * g(p, n) * (1 - g(p, n))


def by_a_loop(p, n):
    below = 1.0
    for _ in range(n):
        below *= 1 - p
    return below * (1 - below) + (1 - below) * below


def exactly(p, n):
    below = (1 - Fraction(p)) ** min(n, 10_000)
    return 2 * below * (1 - below) if n <= 10_000 else two_ways(p, n)


def in_float32(p, n):
    return two_ways(torch.tensor(p), n)


def by_logarithms(p, n):
    below = np.exp(n * np.log1p(-np.float64(p))) if p < 1 else 0.0
    return 2 * below * (1 - below)


def by_logarithms_at_any_p(p, n):
    below = math.exp(n * math.log1p(-p))
    return 2 * below * (1 - below)


# --- early_warning


def grows(history):
    return any(step.largest > 0.8 for step in history)


def silent_unless_near(history):
    if history[-1].near > 0:
        return True


# --- even_odds


def steps_needed(p, segments, ranks):
    return math.log(0.5) / (segments * ranks * math.log1p(-p))


def counted(p, segments, ranks):
    steps = 1
    while (1 - p) ** (steps * segments * ranks) > 0.5:
        steps += 1
    return steps


ANSWERS = {
    "odds": Answers(
        right=[
            (two_ways,),
            (by_a_loop,),
            (exactly,),
            (in_float32,),
            (by_logarithms,),
        ],
        wrong=[
            ((lambda p, n: 2 * p * (1 - p),), "that is one position's"),
            ((g,), "how often the guard is true in one pass"),
            ((lambda p, n: n * 2 * p * (1 - p),), "that adds up n positions"),
            ((lambda p, n: 1 - (1 - 2 * p * (1 - p)) ** n,), "how often any position flips"),
            ((lambda p, n: g(p, n) * (1 - g(p, n)),), "the other way round counts as well"),
            ((lambda p, n: 0.3,), "disagree, you said 0.3"),
            ((lambda p, n: 2 * p**n * (1 - p**n),), "drawn pairs"),
            ((lambda p, n: min(0.5, two_ways(p, n) + (p == 1)),), "every position always is"),
            ((lambda p, n: two_ways(p, n) * 1.001,), "one position: "),
            ((lambda p, n: two_ways(p, min(n, 100)),), "very many, each rarely"),
            ((by_logarithms_at_any_p,), "every position always is: odds(1, 5) raised ValueError: "),
            ((lambda p, n: "half",), "expected a number, got 'half'"),
            ((lambda p, n: 10**400,), "expected a number, got 1000"),
            ((0.5,), "expected a function odds(p, n)"),
            ((lambda p: p,), "your answer raised TypeError"),
        ],
    ),
    "early_warning": Answers(
        right=[
            (lambda history: history[-1].near > 0,),
            (lambda history: history[-1].near,),
            (lambda history: [step for step in history if step.near],),
            (lambda history: torch.tensor(history[-1].near) > 0,),
            (lambda history: history[-1].largest > 0.75,),
            (lambda history: np.float64(history[-1].largest) > 0.9,),
            (grows,),
        ],
        wrong=[
            ((lambda history: True,), "an alarm at step 0"),
            ((lambda history: False,), "no alarm in a run that died"),
            ((lambda history: history[-1].capped > 0,), "too late: the first alarm came at step"),
            ((lambda history: math.isnan(history[-1].gradient),), "too late: the first alarm came at step"),
            ((lambda history: history[-1].mean > 0.25,), "tells the two caps apart"),
            ((lambda history: history[0].near > 0,), "no alarm in a run that died"),
            ((lambda history: len(history) > 17,), "a false alarm at step 17 of a run that lived"),
            ((lambda history: history[-1].loss < 2.0,), "a false alarm at step"),
            ((lambda history: "yes",), "should return True or False"),
            ((silent_unless_near,), "should return True or False, it returned None"),
            ((True,), "expected a function warn(history)"),
            ((lambda history: history.capped,), "your answer raised AttributeError"),
        ],
    ),
    "even_odds": Answers(
        right=[
            (lambda p, segments, ranks: math.ceil(steps_needed(p, segments, ranks)),),
            (lambda p, segments, ranks: np.ceil(steps_needed(p, segments, ranks)),),
            (lambda p, segments, ranks: torch.tensor(steps_needed(p, segments, ranks)).ceil(),),
            (lambda p, segments, ranks: -int(math.log2(1 - (1 - (1 - p) ** (segments * ranks))) ** -1 // 1),),
            (counted,),
        ],
        wrong=[
            ((lambda p, s, r: math.ceil(1 / (2 * p * s * r)),), "which is less than 1/2"),
            ((lambda p, s, r: math.floor(steps_needed(p, s, r)),), "which is less than 1/2"),
            ((lambda p, s, r: round(steps_needed(p, s, r)),), "which is less than 1/2"),
            ((lambda p, s, r: int(steps_needed(p, s, r)) + 1,), "1 step is enough already, with probability 0.500"),
            ((lambda p, s, r: math.ceil(steps_needed(p, 1, r)),), "are enough already"),
            ((lambda p, s, r: math.ceil(steps_needed(p, s, 1)),), "are enough already"),
            ((lambda p, s, r: math.ceil(1 / (p * s * r)),), "are enough already"),
            ((steps_needed,), "expected a whole number"),
            ((lambda p, s, r: 0,), "at least one step"),
            ((7,), "expected a function"),
            ((lambda p, s, r: 10**400,), "steps are enough already"),
            ((lambda p, s: 1,), "your answer raised TypeError"),
        ],
    ),
}
