"""A residual added in place, by the caller, to what the segment was given."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from recompute_lab.specimens.steps import NON_REENTRANT, Block, Model, Run, power


class Residual(Model):
    """Two updates of a stream, [32, 16], each from the stream and a position; only `+=` needs no memory of its own."""

    def build(self) -> None:
        self.stem, self.block = nn.Linear(16, 16), Block()
        self.position = nn.Parameter(torch.randn(32, 16))

    def update(self, x: Tensor) -> Tensor:
        return self.block(x + self.position)

    def step(self, run: Run = NON_REENTRANT) -> Tensor:
        x = self.stem(self.rows)
        for _ in range(2):
            x += run(self.update, x)
        loss = power(x)
        loss.backward()
        return loss.detach()
