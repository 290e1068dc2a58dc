"""A whole training step under each implementation: some faults are not in a segment, but in what its caller does.

A step is a method `step(run)` of an object that `make()` makes: forward and backward, each segment run by
`run(segment, *args)`. Two calls of `make()` give equal objects.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import torch
from torch.utils.checkpoint import checkpoint

from recompute_lab.instruments.checkpointing import released
from recompute_lab.instruments.gradients import Divergence, Run, compared
from recompute_lab.instruments.interrupts import stacks_kept
from recompute_lab.instruments.state import Snapshot
from recompute_lab.instruments.streams import kept, process_streams, seed_everything
from recompute_lab.instruments.witness.report import LOUD, REPLAYABLE, SIDE_EFFECT, SILENT

IMPLEMENTATIONS = {
    "reentrant": partial(checkpoint, use_reentrant=True),
    "non-reentrant": partial(checkpoint, use_reentrant=False),
}


def plainly(segment: Callable, *args):
    """A `run` without checkpointing: the plain run."""
    return segment(*args)


@dataclass
class Outcome:
    """What came of a step under one `run`: `divergence` from the plain run, the warnings that it gave, and `loss_off`,
    how far its loss is from the plain run's, relatively; None where there is none.
    """

    divergence: Divergence
    warned: list[str] = field(default_factory=list)
    loss_off: float | None = None

    @property
    def verdict(self) -> str:
        """The witness's words: "replayable", "side effect", "silent" or "loud"."""
        found = self.divergence
        if found.raised is not None:
            return LOUD
        return SILENT if found.outcome == "silent" else SIDE_EFFECT if found.changed else REPLAYABLE

    @property
    def error(self) -> str:
        """The error's kind and first line, "KeyError: 'bias'"; "" where none was raised."""
        raised = self.divergence.raised
        if raised is None:
            return ""
        told = str(raised).removeprefix("torch.utils.checkpoint: ").strip().splitlines()
        return ": ".join([type(raised).__name__, *told[:1]])

    @property
    def damage(self) -> str:
        """What is wrong with the gradients: "4 gradients missing", "gradients off by 0.8"; "" where nothing is."""
        found = self.divergence
        if found.raised is not None or found.outcome != "silent":
            return ""
        if found.missing:
            return f"{len(found.missing)} gradient{'s' * (len(found.missing) > 1)} missing"
        return f"gradients off by {found.worst:.1g}"


def stepped(make: Callable, run: Callable) -> Run:
    """The step of a fresh object under `run`, torch's, NumPy's and Python's streams seeded; then they are put back."""
    with stacks_kept(), kept(process_streams()):
        seed_everything(0)
        model = make()
        before = Snapshot(model.step)
        try:
            before.clear_grads()  # also of what its code happens to name, and is not its own
            loss = model.step(run)
            gradients = {n: p.grad.detach().clone() for n, p in before.parameters().items() if p.grad is not None}
            output = [loss.detach().clone()] if isinstance(loss, torch.Tensor) else []
            return Run(output, gradients, before.values_now(before.changes()))
        finally:
            before.restore()  # globals and classes, too, are as before


def outcome(make: Callable, run: Callable, plain: Run | None = None) -> Outcome:
    """The step under `run` against the plain run; `plain` is that run, where it is known already.

    What the plain run raises passes through.
    """
    plain = plain or stepped(make, plainly)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            other = stepped(make, run)
            found, off = compared(plain, other, ""), _loss_off(plain, other)
        except Exception as error:
            found, off = Divergence("", effects=list(plain.changed), raised=released(error)), None
    return Outcome(found, [str(w.message).splitlines()[0] for w in caught], off)


def _loss_off(plain: Run, other: Run) -> float | None:
    if not plain.output or not other.output:
        return None
    loss, theirs = float(plain.output[0]), float(other.output[0])
    return abs(theirs - loss) / (abs(loss) or 1.0)


def outcomes(make: Callable, plain: Run | None = None) -> dict[str, Outcome]:
    """The step under both implementations, by name; see `outcome`."""
    plain = plain or stepped(make, plainly)
    return {name: outcome(make, run, plain) for name, run in IMPLEMENTATIONS.items()}
