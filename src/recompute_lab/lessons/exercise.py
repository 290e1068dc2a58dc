"""Exercises: a check that says why, and hints that come one at a time.

A lesson collects its exercises in an `Exercises`; in a notebook, `check.repair_cap(answer)` prints a verdict and
`hint.repair_cap()` prints the next hint.
"""

from __future__ import annotations

import dis
import inspect
import reprlib
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import CodeType, FunctionType, MethodType

from recompute_lab.lessons.advice import advice

NOT_ATTEMPTED, WRONG, RIGHT = "not attempted yet", "not yet", "right"

# Told of each right answer in a cell: the module of the check, and the exercise's name. They print nothing.
observers: list[Callable[[str, str], None]] = []


class Wrong(Exception):
    """Raised by a check: one sentence on what was expected, what came, and where to look."""


def whole(number) -> int:
    """A learner's whole number as an int: 2, 2.0, NumPy's or torch's; raises `Wrong` for all else, for True too."""
    try:
        if not isinstance(number, str | bytes | bool) and int(number) == number:
            return int(number)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        pass
    raise Wrong(f"expected a whole number, got {reprlib.repr(number)}")


@dataclass(frozen=True)
class Verdict:
    status: str
    message: str = ""

    def __str__(self) -> str:
        told = f"{self.status}: {self.message}" if self.message else self.status
        return "\n".join(textwrap.fill(line, 100) for line in told.splitlines())


class Exercise:
    """`judge` gives a `Verdict`, calling prints one. `check` returns why the answer is right, or raises `Wrong`."""

    def __init__(self, name: str, check: Callable[..., str], hints: Sequence[str]):
        self.name, self._check, self.hints = name, check, tuple(hints)
        self.module = getattr(check, "func", check).__module__  # of a partial: its function's

    def judge(self, *answer) -> Verdict:
        parts = [part for part in answer for part in _parts(part)]
        todo = f"replace each ... with your answer, then run this cell; stuck? hint.{self.name}()"
        if any(map(is_stub, parts)):
            return Verdict(NOT_ATTEMPTED, todo)
        try:
            return Verdict(RIGHT, self._check(*answer))
        except Wrong as wrong:
            told = str(wrong)
        except Exception as error:
            told = "your answer raised " + ": ".join([type(error).__name__, *str(error).splitlines()[:1]])
            if do := advice(error):  # the kernel was restarted, say
                told += f". {do}"
        if any(map(_holds_a_stub, parts)):  # asked only now: a right answer may hold a function that does nothing
            return Verdict(NOT_ATTEMPTED, todo)
        return Verdict(WRONG, told)

    def __call__(self, *answer) -> None:
        verdict = self.judge(*answer)
        print(verdict)
        if verdict.status == RIGHT:
            for told in observers:
                told(self.module, self.name)


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
        exercises = self.__dict__.get("all", {})
        if name not in exercises:
            raise AttributeError(f"no exercise {name!r} here; there are: {', '.join(exercises)}")
        return exercises[name]

    def __dir__(self):
        return [*super().__dir__(), *self.all]


class Hints:
    """`hint.name()` prints the next hint of an exercise; after the last one, the last one again."""

    def __init__(self, exercises: Exercises):
        self._exercises, self._given = exercises, {}

    def __getattr__(self, name: str) -> Callable[[], None]:
        if name.startswith("_"):  # Python's own questions; no exercise is called so
            raise AttributeError(name)
        exercise = getattr(self._exercises, name)

        def show() -> None:
            if not exercise.hints:
                print(f"there is no hint for {name}")
                return
            number = min(self._given.get(name, 0), len(exercise.hints) - 1)
            self._given[name] = number + 1
            print(textwrap.fill(f"hint {number + 1} of {len(exercise.hints)}: {exercise.hints[number]}", 100))

        return show

    def __dir__(self):
        return dir(self._exercises)


def is_stub(answer) -> bool:
    """True for what a learner has not filled in yet: `...`, None, or a function or method with the body `...` alone.

    Of a decorated function, what was decorated: a context manager's own wrapper is never empty.
    """
    if isinstance(answer, FunctionType | MethodType):
        return _does_nothing(inspect.unwrap(answer).__code__)
    return answer is ... or answer is None


def _holds_a_stub(answer) -> bool:
    """True for a function in which another one, with a name, is defined and has the body `...` alone."""
    if not isinstance(answer, FunctionType | MethodType):
        return False
    inner = [const for const in inspect.unwrap(answer).__code__.co_consts if isinstance(const, CodeType)]
    return any(code.co_name != "<lambda>" and _does_nothing(code) for code in inner)


def _does_nothing(code: CodeType) -> bool:
    return all(
        step.opname in _NOTHING_DONE and (step.opcode not in dis.hasconst or step.argval in (None, ...))
        for step in dis.get_instructions(code)
    )


# What is left of a body that only has `...`, with or without a docstring, in the versions of Python we support.
_NOTHING_DONE = {"RESUME", "COPY_FREE_VARS", "NOP", "LOAD_CONST", "RETURN_CONST", "RETURN_VALUE"}


def _parts(answer) -> list:
    """A stub anywhere in a table or a list of predictions, or among a class's methods, counts as not attempted."""
    if isinstance(answer, type):
        return [member for member in vars(answer).values() if isinstance(member, FunctionType)]
    if isinstance(answer, dict | list | tuple):
        members = answer.values() if isinstance(answer, dict) else answer
        return [part for member in members for part in _parts(member)]
    return [answer]
