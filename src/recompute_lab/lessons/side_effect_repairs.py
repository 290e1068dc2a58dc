"""Lesson 05: does a repair hold? Trainings compared bit for bit: several steps, several calls per step, nested."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import nn
from torch.utils._pytree import tree_map

from recompute_lab.instruments.checkpointing import NON_REENTRANT, PLAIN, Strategy
from recompute_lab.instruments.state import Snapshot, equal_values
from recompute_lab.lessons.side_effects import LEARNING_RATE, ROWS, rows, total, with_context
from recompute_lab.repairs.recomputation import announced
from recompute_lab.repairs.replay import state_replayed
from recompute_lab.repairs.suppress import buffers_spared
from recompute_lab.specimens import running_state as averages
from recompute_lab.specimens.side_effects import Specimen


@dataclass
class Training:
    """What a training leaves: per step the loss and the gradients; at the end, the state that differs from before."""

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
        return [name for name, (a, b) in pairs.items() if not equal_values(a, b)]


def _items(gradients: dict) -> list:
    return sorted(gradients.items(), key=lambda item: item[0])


def train(
    module: nn.Module,
    strategy: Strategy,
    steps: int = 20,
    calls: int = 1,
    outer: Strategy | None = None,
    look: Callable[[nn.Module], dict[str, object]] | None = None,
) -> Training:
    """`steps` steps of SGD, each with `calls` calls of the module before one backward; afterwards all is as before.

    With `outer`, each call stands inside another segment, of this strategy, which has a sine before it and one behind.
    The state that is reported is what `look(module)` gives at the end; without it, all that can be found. Raises what
    the step raises.
    """
    with _put_back(module) as before:
        optimizer, losses, gradients = torch.optim.SGD(module.parameters(), lr=LEARNING_RATE), [], []
        for step in range(steps):
            module.begin_step()
            loss = one_step(module, strategy, step, calls, outer)
            losses.append(loss.detach())
            gradients.append({n: None if p.grad is None else p.grad.clone() for n, p in module.named_parameters()})
            optimizer.step()
            optimizer.zero_grad()
        now = look(module) if look else before.values_now(before.changes())
    return Training(losses, gradients, now)


def one_step(
    module: nn.Module, strategy: Strategy, step: int, calls: int = 1, outer: Strategy | None = None
) -> torch.Tensor:
    """Forward and backward; the loss. Each call has rows of its own."""
    outputs = []
    for number in range(step * calls, (step + 1) * calls):

        def inner(x, number=number):
            return strategy(module, x, *module.arguments(number, ROWS))

        def enclosing(x, inner=inner):
            return tree_map(torch.sin, inner(torch.sin(x)))

        outputs.append(outer(enclosing, rows(number)) if outer else inner(rows(number)))
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


# --- Does a repair hold?


def repaired(
    specimen: Specimen,
    strategy: Strategy,
    calls: int = 1,
    outer: Strategy | None = None,
    outer_told: bool = True,
    steps: int = 20,
) -> list[str]:
    """Where training the repaired module under a strategy differs from training it plainly: see `differs_from`.

    With `outer`, its segment stands inside another one; `outer_told` gives that checkpoint the repair's context, too.
    """
    module = specimen.repaired()
    context = specimen.context(module) if specimen.context else None
    plain = train(module, PLAIN, steps, calls, outer=outer and PLAIN)
    enclosing = outer and with_context(outer, context if outer_told else None)
    return train(module, with_context(strategy, context), steps, calls, outer=enclosing).differs_from(plain)


def replayed(specimen: Specimen, strategy: Strategy, calls: int = 1) -> list[str]:
    """The same for the faulty module, whose code nobody touches: `state_replayed` is all it is given."""
    module = specimen.faulty()
    under_replay = with_context(strategy, state_replayed(module))
    return train(module, under_replay, calls=calls).differs_from(train(module, PLAIN, calls=calls))


# For each order, the module as it is, and with a guard around its write.
ORDERS: dict[str, tuple[type[nn.Module], type[nn.Module]]] = {
    "written only": (averages.ScaleLogged, averages.ScaleLoggedOnce),
    "read, then written": (averages.ScaleRead, averages.ScaleReadGuarded),
    "written, then read": (averages.ScaleWritten, averages.ScaleWrittenOnce),
}
REPAIRS = ("none", "guard in the code", "written to copies", "state replayed")


def repairs_by_order(strategy: Strategy = NON_REENTRANT, calls: int = 1) -> dict[str, dict[str, list[str]]]:
    """For each order of the moving average, for each of REPAIRS: where five steps differ from the plain ones."""
    table: dict[str, dict[str, list[str]]] = {}
    for order, (bare, guarded) in ORDERS.items():
        plain = train(bare(), PLAIN, steps=5, calls=calls)
        ways = {
            "none": (bare(), lambda module: None),
            "guard in the code": (guarded(), lambda module: announced),
            "written to copies": (bare(), buffers_spared),
            "state replayed": (bare(), state_replayed),
        }
        table[order] = {
            name: train(module, with_context(strategy, context(module)), steps=5, calls=calls).differs_from(plain)
            for name, (module, context) in ways.items()
        }
    return table
