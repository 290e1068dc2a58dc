"""What a drill is, and its two exercises: say what happens, then repair it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import nn

from recompute_lab.lessons.exercise import NOT_ATTEMPTED, Exercise, Verdict
from recompute_lab.specimens.steps import Model

Make = Callable[[], Model]


def as_it_is(model: Model) -> None:
    """No other setting than the model's own."""


@dataclass(frozen=True)
class Drill:
    """One drill.

    `name` is a word; its exercises are `say_NAME` and `mend_NAME`. `level` is "screen", "onsite" or "staff". `faulty`
    makes the model, whose `step(run)` is wrong. `inside(model)` gives the modules that have to be recomputed, and
    `state(model)` what a step leaves besides gradients. `must_do(make)` raises `Wrong` unless a step of what `make()`
    makes does, without checkpointing, what the faulty one is for.

    `ordinary` names settings in which a repair has to be the faulty step's plain run, bit for bit: a function for each,
    which sets a model so. `staged` names ways to make the fault show, where it needs noise: each turns a `Make` into
    another. `besides(make)` raises `Wrong` for what replays there and yet is no repair. `hints_say` and `hints_mend`
    come one at a time; `well` is what is said of a right answer.
    """

    name: str
    title: str
    topic: str
    level: str
    minutes: int
    faulty: type[Model]
    inside: Callable[[Model], list[nn.Module]]
    must_do: Callable[[Make], None]
    hints_say: tuple[str, ...]
    hints_mend: tuple[str, ...]
    well: str
    state: Callable[[Model], dict[str, object]] = lambda model: {}
    ordinary: tuple[tuple[str, Callable[[Model], None]], ...] = (("", as_it_is),)
    staged: tuple[tuple[str, Callable[[Make], Make]], ...] = (("", lambda make: make),)
    besides: Callable[[Make], None] = lambda make: None


class OfAClass(Exercise):
    """An exercise whose answer is a class: one with nothing in it has not been attempted."""

    def judge(self, *answer) -> Verdict:
        if len(answer) == 1 and isinstance(answer[0], type) and not _written(answer[0]):
            todo = f"write the methods that you change, then run this cell; stuck? hint.{self.name}()"
            return Verdict(NOT_ATTEMPTED, todo)
        return super().judge(*answer)


def _written(answer: type) -> set[str]:
    """What stands in the class, besides what Python puts there."""
    return {name for name in vars(answer) if not (name.startswith("__") and name.endswith("__"))}
