"""Lesson 05: what comes of each side effect under each way to checkpoint, and whether its repair holds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import nn

from recompute_lab.instruments.checkpointing import (
    NO_EARLY_STOP,
    NON_REENTRANT,
    PLAIN,
    REENTRANT,
    Strategy,
    weighted_sum,
)
from recompute_lab.instruments.gradients import Divergence, divergence
from recompute_lab.instruments.isolation import isolated
from recompute_lab.instruments.ledger import Recorder
from recompute_lab.instruments.state import equal_values
from recompute_lab.repairs.recomputation import for_reentrant
from recompute_lab.specimens.counters import PLACES, CountedAt
from recompute_lab.specimens.kept_things import Routed
from recompute_lab.specimens.running_state import ScaleRead, ScaleReadInPlace
from recompute_lab.specimens.side_effects import FAMILY, Specimen, specimen

CHECKPOINTED = (REENTRANT, NON_REENTRANT, NO_EARLY_STOP)
ROWS, LEARNING_RATE = 8, 0.01  # at 0.05 two of the family diverge


def rows(seed: int = 0, number: int = ROWS) -> torch.Tensor:
    """An input for the specimens: [number, 16], float32, requires grad."""
    return torch.randn(number, 16, generator=torch.Generator().manual_seed(seed)).requires_grad_()


@dataclass(frozen=True)
class WithContext(Strategy):
    """A strategy whose `context_fn` reaches the reentrant implementation, too."""

    def __call__(self, segment: Callable, *args, **kwargs):
        if self.use_reentrant and self.context_fn:
            return replace(self, context_fn=None)(for_reentrant(segment, self.context_fn), *args, **kwargs)
        return super().__call__(segment, *args, **kwargs)


def with_context(strategy: Strategy, context_fn: Callable | None) -> Strategy:
    """The strategy, given a `context_fn` under whichever implementation; for the plain run it means nothing."""
    return WithContext(**{**vars(strategy), "context_fn": context_fn})


def total(module: nn.Module, outputs: list) -> torch.Tensor:
    """The loss of a step: the squares of what its calls returned, with distinct weights, and the module's own terms."""
    outputs, terms = module.terms(outputs)
    return sum(weighted_sum(output.square()) for output in outputs) + sum(terms)


# --- One step: what is written, what comes of it


@dataclass(frozen=True)
class Symptom:
    """What one step of a specimen comes to under one strategy.

    `written` is how often the state was written, as a number of plain forwards that leave the same state; None where
    no number up to 3 does. `result` holds the gradients against the plain run's.
    """

    specimen: str
    strategy: str
    written: int | None
    result: Divergence

    @property
    def outcome(self) -> str:
        """`Divergence.outcome`: "fine", "silent", or the kind of error."""
        return self.result.outcome

    @property
    def state_wrong(self) -> bool:
        """Is the state another one than after the plain step, whether or not something was raised?"""
        return self.written != 1 if self.result.raised else bool(self.result.changed)


def symptoms(family: tuple[Specimen, ...] = FAMILY, strategies: tuple[Strategy, ...] = CHECKPOINTED) -> list[Symptom]:
    """One step of each specimen, from its first state, under each strategy."""
    return [symptom(one, strategy) for one in family for strategy in strategies]


def symptom(specimen: Specimen, strategy: Strategy) -> Symptom:
    """One step of the faulty module under a strategy."""
    module = specimen.faulty()
    args = (rows(), *module.arguments(0, ROWS))
    result = divergence(module, *args, strategy=strategy, loss=lambda output: total(module, [output]))
    return Symptom(specimen.name, strategy.name, times_written(module, *args, strategy=strategy), result)


def times_written(module: nn.Module, *args, strategy: Strategy, most: int = 3) -> int | None:
    """How many plain forwards leave the state that one step (forward and backward) leaves under the strategy.

    0 where it writes nothing, None where no number up to `most` leaves it: then it is written in part.
    """
    left = _left_by(module, args, lambda call: _step(module, strategy, call))
    for number in range(most + 1):

        def forwards(call, number=number):
            for _ in range(number):
                module(*call.args)

        plainly = _left_by(module, args, forwards)
        if left.keys() == plainly.keys() and all(equal_values(left[name], plainly[name]) for name in left):
            return number
    return None


def _left_by(module: nn.Module, args: tuple, act: Callable) -> dict[str, object]:
    """What differs from the state before, by name, and what it is now; the state is put back."""
    with isolated(module, *args) as call:
        act(call)
        return call.before.values_now(call.before.changes())


def _step(module: nn.Module, strategy: Strategy, call) -> None:
    try:
        total(module, [strategy(module, *call.args)]).backward()
    except RuntimeError:  # the recomputation was noticed to differ; the state is what we ask for
        pass


def also_read(module: nn.Module, *args) -> bool:
    """True where a second forward on the same input, from the state that the first one left, is not the first one.

    Compared are the output, the operators and shapes of the saved tensors, and the gradients of all leaves. False: the
    state may be written, but nothing in the forward depends on what was written.
    """
    with isolated(module, *args) as call:
        leaves = [*call.before.parameters().values(), *call.leaves.values()]
        recorder, found = Recorder(module), []
        for _ in range(2):
            streams = torch.get_rng_state()
            (output,), _ = module.terms([recorder(*call.args)])
            torch.set_rng_state(streams)
            gradients = torch.autograd.grad(weighted_sum(output), leaves, retain_graph=True, allow_unused=True)
            saved = [(row.operator, row.shape) for row in recorder.passes[-1]]
            found.append([output.detach().clone(), saved, *gradients])
    return not equal_values(*found)


VERDICTS = ("only written", "also read", "writes nothing")


def verdict(specimen: Specimen) -> str:
    """One of VERDICTS, measured on the faulty module in its first state."""
    module = specimen.faulty()
    args = (rows(), *module.arguments(0, ROWS))
    if also_read(module, *args):
        return "also read"
    return "only written" if times_written(module, *args, strategy=PLAIN) else "writes nothing"


# --- Placement: the same write at three places of a segment


def placement() -> dict[str, dict[str, int]]:
    """For each place of the counter, for each strategy: the calls it counts in one step."""
    return {place: {s.name: _counted(CountedAt(place), s) for s in (PLAIN, *CHECKPOINTED)} for place in PLACES}


def _counted(module: CountedAt, strategy: Strategy) -> int:
    total(module, [strategy(module, rows())]).backward()
    return module.calls


def saved_tensors(place: str) -> tuple[list[str], int]:
    """The operators whose tensors `CountedAt(place)` saves, in order; how many of them before it counts."""
    before = []

    class Noting(CountedAt):
        def __setattr__(self, name, value):
            if name == "calls" and value > getattr(self, "calls", 0):
                before.append(len(recorder.passes[-1]))
            super().__setattr__(name, value)

    recorder = Recorder(Noting(place))
    recorder(rows())
    return [row.operator for row in recorder.passes[-1]], before[0]


# --- What the table has no room for


def errors_over_training(name: str, strategy: Strategy, at: tuple[int, ...] = (0, 1, 5, 20, 100)) -> dict[int, float]:
    """The gradient error of one checkpointed step at these steps of a plain training, `Divergence.damage`.

    Raises ValueError for the name of no specimen.
    """
    module, errors = specimen(name).faulty(), {}
    optimizer = torch.optim.SGD(module.parameters(), lr=LEARNING_RATE)
    for step in range(max(at) + 1):
        module.begin_step()
        args = (rows(step), *module.arguments(step, ROWS))
        if step in at:
            found = divergence(module, *args, strategy=strategy, loss=lambda output: total(module, [output]))
            errors[step] = float("nan") if found.raised else found.damage
        total(module, [module(*args)]).backward()
        optimizer.step()
        optimizer.zero_grad()
    return errors


def router_gradients() -> dict[str, float]:
    """For each strategy: how much of the balance loss's gradient arrives at the router's weights; 1.0 is right."""
    due = _balance_part(_backward(Routed(), PLAIN), Routed()).norm()
    return {
        strategy.name: float(_balance_part(_backward(Routed(), strategy), Routed()).norm() / due)
        for strategy in (PLAIN, *CHECKPOINTED)
    }


def taken_before_backward(strategy: Strategy, steps: int = 4) -> list[tuple[int, float | str]]:
    """A loop that takes the collected losses out of the list before it goes backward, as many do.

    Per step: how many terms were in the list, and the relative error of the balance loss's part in the router's
    gradient; or the message of the error that ended it, up to its first parenthesis.
    """
    found, module = [], Routed()
    optimizer = torch.optim.SGD(module.parameters(), lr=LEARNING_RATE)
    for step in range(steps):
        beside = Routed()
        beside.load_state_dict(module.state_dict())
        due = _balance_part(_backward(beside, PLAIN, step, emptied=True), beside, step)
        taken = len(module.losses) + 1
        try:
            made = _balance_part(_backward(module, strategy, step, emptied=True), beside, step)
        except RuntimeError as error:
            return [*found, (taken, str(error).partition(" (")[0])]
        found.append((taken, float((made - due).norm() / due.norm())))
        optimizer.step()
        optimizer.zero_grad()
    return found


def _backward(
    module: Routed, strategy: Strategy, step: int = 0, emptied: bool = False, with_terms: bool = True
) -> torch.Tensor:
    """One forward and backward; the gradient of the router's weights."""
    output = strategy(module, rows(step))
    loss = weighted_sum(output.square())
    loss = loss + sum(module.losses) if with_terms else loss
    if emptied:
        module.losses.clear()
    loss.backward()
    return module.router.weight.grad.clone()


def _balance_part(gradient: torch.Tensor, beside: Routed, step: int = 0) -> torch.Tensor:
    """What is left of a router's gradient without that of the output, which a plain step of `beside` tells."""
    beside.zero_grad()
    return gradient - _backward(beside, PLAIN, step, with_terms=False)


def changed_in_place() -> dict[str, float | None]:
    """A buffer that is read, then changed in place: what autograd's own check says under each strategy.

    None where it raises; else the relative error of the first layer's gradient, against a plain run that puts a new
    tensor in the buffer's place instead.
    """

    def gradient(module: nn.Module, strategy: Strategy) -> torch.Tensor:
        total(module, [strategy(module, rows())]).backward()
        return module.first.weight.grad

    right, found = gradient(ScaleRead(), PLAIN), {}
    for strategy in (PLAIN, *CHECKPOINTED):
        try:
            found[strategy.name] = float((gradient(ScaleReadInPlace(), strategy) - right).norm() / right.norm())
        except RuntimeError:
            found[strategy.name] = None
    return found
