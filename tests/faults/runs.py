"""Run a fault plainly, checkpointed, or watched; each time made afresh, from the same seeds."""

from __future__ import annotations

import contextvars
import random
import warnings
from dataclasses import dataclass, replace

import numpy as np
import torch

from faults import LOUD, REPLAYABLE, SIDE_EFFECT, SILENT, Fault
from recompute_lab.instruments.checkpointing import NON_REENTRANT, PLAIN, REENTRANT, Strategy, weighted_sum
from recompute_lab.instruments.isolation import tensors_in
from recompute_lab.instruments.state import Snapshot, equal_values
from recompute_lab.instruments.witness import Report, Witness

ROUNDING = 1e-5


@dataclass
class Outcome:
    """Of one step: its output, the gradients by leaf, what it left changed, and the error that ended it."""

    output: list[torch.Tensor]
    grads: dict[str, torch.Tensor]
    left: dict[str, object]
    error: BaseException | None = None


def seeded() -> None:
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)


def step(fault: Fault, strategy: Strategy, disturbed: bool = True) -> Outcome:
    """One forward and backward. Without `disturbed`, nothing happens between the two."""
    dtype = torch.get_default_dtype()
    try:
        return contextvars.copy_context().run(_step, fault, strategy, disturbed)
    finally:
        torch.set_default_dtype(dtype)


def _step(fault: Fault, strategy: Strategy, disturbed: bool) -> Outcome:
    seeded()
    segment, args = fault.make()
    before = Snapshot(lambda *given: segment, *args)
    leaves, error, output = before.parameters(), None, ()
    strategy = replace(strategy, **fault.options)
    with warnings.catch_warnings(action="ignore"):
        try:
            output = fault.driver(strategy, segment, *args) if fault.driver else strategy(segment, *args)
            if fault.between and disturbed:
                fault.between(segment, args, output)
            if fault.backward:
                fault.backward(output, segment)
            # What reentrant checkpointing has cut off has no gradient: that is its outcome.
            elif any(t.requires_grad for t in tensors_in(output)):
                weighted_sum(output).backward()
        except Exception as raised:
            error = raised
    grads = {name: leaf.grad.clone() for name, leaf in leaves.items() if leaf.grad is not None}
    return Outcome([t.detach() for t in tensors_in(output)], grads, before.values_now(before.changes()), error)


def verdict(fault: Fault, strategy: Strategy) -> str:
    """What comes of it under a strategy, against the plain run."""
    plain = step(fault, PLAIN)
    if plain.error is not None:  # autograd refuses what happened in between; its gradients are those without it
        plain = step(fault, PLAIN, disturbed=False)
    assert plain.error is None, f"{fault}: the plain run raises {plain.error!r}"
    other = step(fault, strategy)
    if other.error is not None:
        return LOUD
    if plain.grads.keys() != other.grads.keys() or len(plain.output) != len(other.output):
        return SILENT
    if not all(torch.allclose(a, b, rtol=1e-4) for a, b in zip(plain.output, other.output, strict=True)):
        return SILENT
    largest = max((float(g.abs().max()) for g in plain.grads.values()), default=0.0)
    for name, grad in plain.grads.items():
        # One that is zero up to rounding must not be held against its own size.
        size = max(float(grad.norm()), 1e-2 * largest)
        if grad.shape != other.grads[name].shape or not float((grad - other.grads[name]).norm()) <= ROUNDING * size:
            return SILENT
    same = plain.left.keys() == other.left.keys()
    same = same and all(equal_values(plain.left[name], other.left[name]) for name in plain.left)
    return REPLAYABLE if same else SIDE_EFFECT


def verdicts(fault: Fault) -> tuple[str, str]:
    """(non-reentrant, reentrant)"""
    return verdict(fault, NON_REENTRANT), verdict(fault, REENTRANT)


def watched(fault: Fault) -> list[Report]:
    """The reports of a step with the non-reentrant implementation and a witness."""
    witness = Witness()
    step(fault, replace(NON_REENTRANT, context_fn=witness.context_fn))
    return witness.reports
