"""Lesson 03, loud or silent: every flip under every way to checkpoint it, and the exercises."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product

import torch

from recompute_lab.instruments.checkpointing import Strategy
from recompute_lab.instruments.gradients import Divergence, divergence
from recompute_lab.instruments.nondeterminism import Nudge
from recompute_lab.specimens.branches import BRANCHES, BranchingSegment

# What the guard says in the forward, then in the recomputation. Eight ulps are more than a norm's rounding.
DIRECTIONS = {"true, then false": {1: +8, 2: -8}, "false, then true": {1: -8, 2: +8}}

FLAGS = tuple(
    Strategy(
        f"{'reentrant' if reentrant else 'non-reentrant'}, early stop {'on' if stop else 'off'}, check {check}",
        reentrant,
        stop,
        check,
    )
    for reentrant, stop, check in product((True, False), (True, False), ("default", "none"))
)


@dataclass(frozen=True)
class Flip:
    """A segment whose guard says one thing in the forward and another in the recomputation, and its argument.

    Only the last bits differ between the passes. `nudge` counts them: rewind it before a step of one's own.
    """

    branch: str
    direction: str
    model: BranchingSegment
    nudge: Nudge
    segment: Callable[[torch.Tensor], torch.Tensor]
    x: torch.Tensor


def flip(branch: str, direction: str, seed: int = 0) -> Flip:
    """The staged flip of one of `BRANCHES` in one of `DIRECTIONS`: the limit is set to the largest ratio itself.

    Raises ValueError, naming the choices, for any other branch or direction.
    """
    for name, choices in ((branch, BRANCHES), (direction, DIRECTIONS)):
        if name not in choices:
            raise ValueError(f"{name!r} is none of: {'; '.join(choices)}")
    nudge = Nudge(DIRECTIONS[direction])
    x = torch.randn(32, 16, generator=torch.Generator().manual_seed(seed)).requires_grad_()
    model = BranchingSegment(BRANCHES[branch], nudge, seed=seed)
    model.stand_on_threshold(x)
    return Flip(branch, direction, model, nudge, nudge.counted(model), x)


def matrix(seed: int = 0) -> Iterator[tuple[Flip, Strategy, Divergence]]:
    """Every branch, direction and strategy: 5 x 2 x 8 cells, each measured against the run without checkpointing."""
    for branch, direction in product(BRANCHES, DIRECTIONS):
        case = flip(branch, direction, seed)
        for strategy in FLAGS:
            yield case, strategy, divergence(case.segment, case.x, strategy=strategy)
