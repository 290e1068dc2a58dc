"""Exercises: a check that says why, and hints that come one at a time.

A lesson collects its exercises in an `Exercises`; in a notebook, `check.repair_cap(answer)` prints a verdict and
`hint.repair_cap()` prints the next hint.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import FunctionType

NOT_ATTEMPTED, WRONG, RIGHT = "not attempted yet", "not yet", "right"


class Wrong(Exception):
    """Raised by a check: one sentence on what was expected, what came, and where to look."""


@dataclass(frozen=True)
class Verdict:
    status: str
    message: str = ""

    def __str__(self) -> str:
        return textwrap.fill(f"{self.status}: {self.message}" if self.message else self.status, 100)


class Exercise:
    """One exercise: `judge` gives a `Verdict`, calling it prints one. `check` returns why the answer is right, or raises."""

    def __init__(self, name: str, check: Callable[..., str], hints: Sequence[str]):
        self.name, self._check, self.hints = name, check, tuple(hints)

    def judge(self, *answer) -> Verdict:
        missing = [part for part in answer for part in _parts(part) if is_stub(part)]
        if missing:
            return Verdict(NOT_ATTEMPTED, f"replace each ... with your answer, then run this cell; stuck? hint.{self.name}()")
        try:
            return Verdict(RIGHT, self._check(*answer))
        except Wrong as wrong:
            return Verdict(WRONG, str(wrong))
        except Exception as error:
            first_line = (str(error).splitlines() or [""])[0]
            return Verdict(WRONG, f"your answer raised {type(error).__name__}: {first_line}")

    def __call__(self, *answer) -> None:
        print(self.judge(*answer))


class Exercises:
    """A lesson's exercises, as attributes; `@exercises.add(*hints)` turns a check function into one."""

    def __init__(self):
        self.all: dict[str, Exercise] = {}

    def add(self, *hints: str) -> Callable:
        def decorate(check: Callable[..., str]) -> Exercise:
            exercise = Exercise(check.__name__, check, hints)
            self.all[exercise.name] = exercise
            return exercise

        return decorate

    def __getattr__(self, name: str) -> Exercise:
        try:
            return self.__dict__["all"][name]
        except KeyError:
            raise AttributeError(f"no exercise {name!r} here; there are: {', '.join(self.all)}") from None

    def __dir__(self):
        return [*super().__dir__(), *self.all]


class Hints:
    """`hint.name()` prints the next hint of an exercise; after the last one, the last one again."""

    def __init__(self, exercises: Exercises):
        self._exercises, self._given = exercises, {}

    def __getattr__(self, name: str) -> Callable[[], None]:
        exercise = getattr(self._exercises, name)

        def show() -> None:
            number = min(self._given.get(name, 0), len(exercise.hints) - 1)
            self._given[name] = number + 1
            print(textwrap.fill(f"hint {number + 1} of {len(exercise.hints)}: {exercise.hints[number]}", 100))

        return show


def is_stub(answer) -> bool:
    """True for what a learner has not filled in yet: `...`, None, or a function whose body is `...` alone."""
    if isinstance(answer, FunctionType):
        return answer.__code__.co_code == _stub.__code__.co_code
    return answer is ... or answer is None


def _stub(): ...


def _parts(answer) -> list:
    """A stub anywhere in a table of predictions counts as not attempted."""
    return list(answer.values()) if isinstance(answer, dict) else [answer]
