"""What the field guide's specimens share: a model, and the training step around it that may be part of the fault."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

Run = Callable[..., object]
NON_REENTRANT: Run = partial(checkpoint, use_reentrant=False)


class Model(nn.Module):
    """`step(run)` is one training step, forward and backward; it runs each segment by `run(segment, *args)`.

    Weights and `rows`, the batch [32, 16], are drawn from a seed of their own, so that two instances are equal.
    """

    def __init__(self, seed: int = 0):
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.build()
            self.rows = torch.randn(32, 16)

    def build(self) -> None:
        """Make the submodules; torch's stream is seeded."""
        raise NotImplementedError

    def step(self, run: Run = NON_REENTRANT) -> torch.Tensor:
        """Leaves the gradients in the parameters, as backward does, and returns the loss."""
        raise NotImplementedError


def plainly(segment: Callable, *args):
    """No checkpointing: `model.step(plainly)` is the plain run."""
    return segment(*args)


class Block(nn.Module):
    """x + down(gelu(up(x))), [..., width] -> [..., width]."""

    def __init__(self, width: int = 16):
        super().__init__()
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(nn.functional.gelu(self.up(x)))


def power(y: torch.Tensor) -> torch.Tensor:
    """The mean square of what comes out: a loss for where none is needed that means something."""
    return y.square().mean()
