"""Lesson 05's exercise on the momentum of a checkpointed BatchNorm: real ones, trained, say whether it is right."""

from __future__ import annotations

import reprlib
from collections.abc import Callable

from recompute_lab.instruments.checkpointing import PLAIN, REENTRANT
from recompute_lab.lessons.batchnorm import Deviation, nested
from recompute_lab.lessons.exercise import Wrong

HINTS = (
    "One update with m keeps the share 1 - m of the old value. What share do two updates with m' keep? And k updates?",
    "What is kept decides: (1 - m') ** updates has to be 1 - m. Solve that for m'.",
)

_CASES = ((0.1, 2), (0.5, 2), (0.1, 3), (0.5, 3))
_STEPS, _ROUNDING = 20, 1e-5

# What a wrong answer is, and why it is wrong; the first that fits is told.
_MISTAKES: list[tuple[Callable[[float, int], float], str]] = [
    (lambda m, k: 0.0, "With 0 nothing is ever written: evaluation would use the values of the start."),
    (lambda m, k: m, "That is m itself: each update keeps 1 - m, so all of them keep less than one update would."),
    (
        lambda m, k: m ** (1 / k),
        "That is the root of m, the weight of the batch. What updates multiply is the share of the old value that they "
        "keep.",
    ),
    (
        lambda m, k: m / k,
        "Near, and nearer the smaller m is: the updates keep (1 - m / k) ** k, which is not 1 - m. A share of what is "
        "left is not a share of the whole.",
    ),
    (
        lambda m, k: 1 - (1 - m) ** k,
        "That is the way back: one update with this momentum does what all those with m do. Which m' makes them do "
        "what one does with m?",
    ),
    (lambda m, k: (1 - m) ** (1 / k), "That is the share to keep. torch's momentum is the weight of the batch."),
    (lambda m, k: 1 - (1 - m) ** (1 / 2), "That is right for two updates; here the segments are nested."),
]


def momentum(answer: Callable[[float, int], float]) -> str:
    """`answer(m, updates)` is a momentum; so many updates per step must move statistics as one with m does.

    BatchNorms in one segment and in two nested ones (two and three updates, under the reentrant implementation) are
    trained with it, and compared with the plain run, mean and variance, after each step.
    """
    if not callable(answer):
        raise Wrong("give a function: def momentum(m, updates), which returns a number.")
    for m, updates in _CASES:
        given = _number(answer(m, updates), f"momentum({m}, {updates})")
        plain = nested(PLAIN, updates - 1, momentum=m, steps=_STEPS)
        off = Deviation.of(nested(REENTRANT, updates - 1, momentum=given, steps=_STEPS), plain)
        if not off.worst < _ROUNDING:
            raise Wrong(
                f"m = {m}, {updates} updates per step: with momentum {given:.3g} the running statistics part from the "
                f"plain run's by up to {off.worst:.1g}. {_diagnosis(given, m, updates)}"
            )
    return (
        "mean and variance are the plain run's up to rounding, in one segment and in two nested ones. The counter "
        "still counts every update."
    )


def _number(value, call: str) -> float:
    try:
        if isinstance(value, str | bytes | bool):
            raise TypeError
        number = float(value)
    except (TypeError, ValueError, RuntimeError):
        raise Wrong(f"{call} gave {reprlib.repr(value)}; a number was expected.") from None
    if not 0 <= number <= 1:
        raise Wrong(f"{call} gave {number:.3g}; a momentum is the weight of the batch, from 0 to 1.")
    return number


def _diagnosis(given: float, m: float, updates: int) -> str:
    for formula, told in _MISTAKES:
        if abs(formula(m, updates) - given) < 1e-6:
            return told
    return "What share of the old value do the updates keep, and what share would one update with m keep?"
