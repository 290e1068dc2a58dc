"""Lesson 05: what comes of each side effect under each way to checkpoint, and whether its repair holds."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
from recompute_lab.instruments.gradients import Divergence, divergence, same_values
from recompute_lab.instruments.isolation import isolated
from recompute_lab.instruments.ledger import Recorder
from recompute_lab.instruments.state import Snapshot, same_bits
from recompute_lab.repairs.recomputation import announced, for_reentrant
from recompute_lab.repairs.replay import state_replayed
from recompute_lab.repairs.suppress import buffers_spared
from recompute_lab.specimens import running_state
from recompute_lab.specimens.counters import PLACES, CountedAt
from recompute_lab.specimens.side_effects import FAMILY, Specimen

CHECKPOINTED = (REENTRANT, NON_REENTRANT, NO_EARLY_STOP)
ROWS = 8


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
    """The loss of a step: each element of what its calls returned, with distinct weights, and the module's own terms."""
    outputs, terms = module.terms(outputs)
    return sum(map(weighted_sum, outputs)) + sum(terms)


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
    return _symptom(specimen.name, specimen.faulty(), strategy)


def repaired_symptom(specimen: Specimen, strategy: Strategy) -> Symptom:
    """One step of the repaired one, with the context that its repair asks for."""
    module = specimen.repaired()
    return _symptom(specimen.name, module, with_context(strategy, _context(specimen, module)))


def _context(specimen: Specimen, module: nn.Module) -> Callable | None:
    return specimen.context(module) if specimen.context else None


def _symptom(name: str, module: nn.Module, strategy: Strategy) -> Symptom:
    args = (rows(), *module.arguments(0, ROWS))
    result = divergence(module, *args, strategy=strategy, loss=lambda output: total(module, [output]))
    return Symptom(name, strategy.name, times_written(module, *args, strategy=strategy), result)


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
        if left.keys() == plainly.keys() and all(same_values(left[name], plainly[name]) for name in left):
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
    return not same_values(*found)


# --- Placement: the same write at three places of a segment


def placement() -> dict[str, dict[str, int]]:
    """For each place of the counter, for each strategy: the calls it counts in one step."""
    return {place: {s.name: _counted(CountedAt(place), s) for s in (PLAIN, *CHECKPOINTED)} for place in PLACES}


def _counted(module: CountedAt, strategy: Strategy) -> int:
    total(module, [strategy(module, rows())]).backward()
    return module.calls


# --- Training: several steps, several calls per step


@dataclass
class Training:
    """What a training leaves: per step the loss and the gradients, and at the end the state that differs from before."""

    losses: list[torch.Tensor]
    gradients: list[dict[str, torch.Tensor | None]]
    state: dict[str, object]

    def differs_from(self, other: Training) -> list[str]:
        """Which of "losses", "gradients", "state" are not equal bit for bit; state only where both have that name."""
        common = self.state.keys() & other.state.keys()
        pairs = {
            "losses": (self.losses, other.losses),
            "gradients": ([*map(_items, self.gradients)], [*map(_items, other.gradients)]),
            "state": tuple([state[name] for name in sorted(common)] for state in (self.state, other.state)),
        }
        return [name for name, (a, b) in pairs.items() if not same_values(a, b)]


def _items(gradients: dict) -> list:
    return sorted(gradients.items(), key=lambda item: item[0])


def train(
    module: nn.Module,
    strategy: Strategy,
    steps: int = 20,
    calls: int = 1,
    outer: Strategy | None = None,
    learning_rate: float = 0.05,
) -> Training:
    """`steps` steps of SGD, each with `calls` calls of the module before one backward; the module is afterwards as before.

    With `outer`, each call stands inside another checkpoint. Raises what the step raises.
    """
    with _put_back(module) as before:
        optimizer, losses, gradients = torch.optim.SGD(module.parameters(), lr=learning_rate), [], []
        for step in range(steps):
            module.begin_step()
            loss = one_step(module, strategy, step, calls, outer)
            losses.append(loss.detach())
            gradients.append({n: None if p.grad is None else p.grad.clone() for n, p in module.named_parameters()})
            optimizer.step()
            optimizer.zero_grad()
        now = before.values_now(before.changes())
    return Training(losses, gradients, {re.sub(r"_hooks\[\d+\]", "_hooks", name): now[name] for name in now})


def one_step(
    module: nn.Module, strategy: Strategy, step: int, calls: int = 1, outer: Strategy | None = None
) -> torch.Tensor:
    """Forward and backward; the loss. Each call has rows of its own."""
    outputs = []
    for number in range(step * calls, (step + 1) * calls):

        def inner(x, number=number):
            return strategy(module, x, *module.arguments(number, ROWS))

        outputs.append(outer(inner, rows(number)) if outer else inner(rows(number)))
    loss = total(module, outputs)
    loss.backward()
    return loss


@contextmanager
def _put_back(module: nn.Module) -> Iterator[Snapshot]:
    before = Snapshot(module)
    try:
        yield before
    finally:
        before.restore()
