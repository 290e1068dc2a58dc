"""Faulty segments as they are met in training code, and harmless ones that look like them.

A diagnosis is tried on them: it has to name the cause of each fault, and to say nothing of the others. Each is a
function that makes a fresh segment and its arguments; where the caller's code belongs to the fault, a driver runs it.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass, field

# Why some are missed.
UNREACHED = "it cannot be reached from the segment, nor put back: the operator is named at which it shows"
NOT_RUN_AGAIN = "torch runs the segment no second time, and a report is made of a second run"
MADE_ONCE = "what cannot be put back is used up by the first of the runs that are compared"

REPLAYABLE, SIDE_EFFECT, SILENT, LOUD = "replayable", "side effect", "silent", "loud"
KINDS = ("state", "randomness", "order", "protocol", "reentrant_only", "none")


@dataclass(frozen=True)
class Fault:
    """One segment and what is known of it.

    `make()` gives (segment, arguments). `driver(checkpoint, segment, *arguments)` is the caller's code up to the loss,
    where there is some: `checkpoint` is the strategy, to be called with a segment and its arguments. `between(segment,
    arguments, output)` is called before backward, `backward(output, segment)` runs it. `options` go to `checkpoint`.

    `names` is a regular expression for the name of the first cause, `non_reentrant` and `reentrant` the verdicts;
    `proven` says whether the cause is of a kind that can be undone or seen to happen. `missed` says what a diagnosis
    does not find, and why: of the cause ("watched", "examined") and of the verdicts ("watched verdict", "watched
    reentrant", "examined verdict").
    """

    name: str
    kind: str
    make: Callable
    names: str
    non_reentrant: str
    reentrant: str
    proven: bool = True
    driver: Callable | None = None
    between: Callable | None = None
    backward: Callable | None = None
    options: dict = field(default_factory=dict)
    missed: dict[str, str] = field(default_factory=dict)

    @property
    def stands_alone(self) -> bool:
        """The segment and its arguments are enough to show it."""
        return self.driver is None and self.backward is None and not self.options

    def __str__(self) -> str:
        return f"{self.kind}: {self.name}"


FAULTS: list[Fault] = []


def fault(names: str, non_reentrant: str, reentrant: str, **known) -> Callable:
    """Enter the decorated function, which makes the segment, into `FAULTS`, under its module's kind."""

    def entered(make: Callable) -> Callable:
        kind = make.__module__.rpartition(".")[2]
        FAULTS.append(Fault(make.__name__, kind, make, names, non_reentrant, reentrant, **known))
        return make

    return entered


def harmless(**known) -> Callable:
    """Enter a segment that both implementations replay."""
    return fault("", REPLAYABLE, REPLAYABLE, **known)


def all_faults() -> list[Fault]:
    for kind in KINDS:
        importlib.import_module(f"faults.{kind}")
    return FAULTS
