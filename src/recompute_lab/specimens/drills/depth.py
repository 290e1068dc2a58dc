"""One block for all depths, told by an attribute how deep it is."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from recompute_lab.specimens.steps import NON_REENTRANT, Block, Model, Run, power


class Repeated(Model):
    """A block used four times, [N, 16] -> [N, 16], with an embedding of the depth added to its input.

    Source: M. Dehghani et al., "Universal Transformers", ICLR 2019.
    """

    def build(self) -> None:
        self.stem, self.block = nn.Linear(16, 16), Block()
        self.depths, self.depth = nn.Parameter(torch.randn(4, 16)), 0

    def layer(self, x: Tensor) -> Tensor:
        return self.block(x + self.depths[self.depth])

    def step(self, run: Run = NON_REENTRANT) -> Tensor:
        x = self.stem(self.rows)
        for depth in range(4):
            self.depth = depth
            x = run(self.layer, x)
        loss = power(x)
        loss.backward()
        return loss.detach()
