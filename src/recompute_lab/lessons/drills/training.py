"""A few steps of training, and where two trainings differ, in words."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from recompute_lab.instruments.gradients import ROUNDING
from recompute_lab.instruments.state import Snapshot, equal_values, same_bits
from recompute_lab.instruments.streams import kept, process_streams, seed_everything
from recompute_lab.lessons.drills.drill import Make, as_it_is
from recompute_lab.specimens.steps import Model

LEARNING_RATE = 0.1


@dataclass
class Step:
    """What one step left: its loss, the gradients by name, and the state."""

    loss: object
    gradients: dict[str, torch.Tensor | None]
    state: dict[str, object]


@contextmanager
def alone(make: Make) -> Iterator[Model]:
    """A model that `make` makes; afterwards random streams, globals and classes are as before.

    What is hung on the model inside, a hook that counts, keeps what it has seen.
    """
    with kept(process_streams()):
        model = make()
        before = Snapshot(model.step)
        try:
            yield model
        finally:
            before.restore()


def trained(
    make: Make,
    runs: list[Callable],
    state: Callable[[Model], dict[str, object]],
    setting: Callable[[Model], None] = as_it_is,
    seed: int = 0,
) -> list[Step]:
    """One step of SGD for each of `runs`, streams seeded before each."""
    steps = []
    with alone(make) as model:
        setting(model)
        for number, run in enumerate(runs):
            seed_everything(seed + number)
            model.zero_grad()
            loss = model.step(run)
            gradients = {n: None if p.grad is None else p.grad.clone() for n, p in model.named_parameters()}
            steps.append(Step(loss, gradients, _copied(state(model))))
            with torch.no_grad():
                for parameter in model.parameters():
                    if parameter.grad is not None:
                        parameter -= LEARNING_RATE * parameter.grad
    return steps


def _copied(state: dict[str, object]) -> dict[str, object]:
    return {name: v.detach().clone() if isinstance(v, torch.Tensor) else v for name, v in state.items()}


def difference(ours: list[Step], theirs: list[Step], exact: bool = False) -> str:
    """The first thing that is not as in `theirs`, in words; "" where there is none.

    With `exact`, loss and state of the first step have to agree in every bit. All else may differ by rounding: in which
    order gradients are added up is no part of a step's meaning.
    """
    for number, (a, b) in enumerate(zip(ours, theirs, strict=True), 1):
        when = "" if number == 1 else f" in step {number}"
        if told := _loss(a.loss, b.loss, exact and number == 1) or _gradients(a, b):
            return told + when
        if told := _state(a, b, exact and number == 1):
            return told + when
    return ""


def _loss(ours, theirs, exact: bool) -> str:
    if not isinstance(ours, torch.Tensor) or ours.numel() != 1:
        return "the step returns no loss: end it with return loss.detach()"
    if ours.requires_grad:
        return "the step returns a loss with its graph: end it with return loss.detach()"
    if near(ours, theirs):
        if exact and not same_bits(ours, theirs):
            return "the loss differs in its last bits: keep the operations, and their order"
        return ""
    return f"the loss is {float(ours):.4g}, not {float(theirs):.4g}"


def _gradients(ours: Step, theirs: Step) -> str:
    for name, right in theirs.gradients.items():
        given = ours.gradients.get(name)
        if right is not None and given is None:
            return f"{name} has no gradient"
        if right is None and given is not None and given.count_nonzero():
            return f"{name} has a gradient, where there should be none"
        if right is not None and not near(given, right):
            error = float((given - right).norm() / right.norm())
            return f"the gradient of {name} is off by {error:.1g}"
    return ""


def _state(ours: Step, theirs: Step, exact: bool) -> str:
    for name, right in theirs.state.items():
        given = ours.state[name]
        tensors = isinstance(given, torch.Tensor) and isinstance(right, torch.Tensor)
        if not (near(given, right) if tensors else _close(given, right)):
            numbers = isinstance(given, int | float) and isinstance(right, int | float)
            return f"{name} is {given:.4g}, not {right:.4g}" if numbers else f"{name} is not what it should be"
        if exact and not equal_values(given, right):
            return f"{name} differs in its last bits: keep the operations, and their order"
    return ""


def near(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Equal up to rounding, in the Euclidean norm."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    return same_bits(a, b) or bool((a - b).norm() <= ROUNDING * b.norm())


def _close(a, b) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return abs(a - b) <= ROUNDING * abs(b)
    return equal_values(a, b)
