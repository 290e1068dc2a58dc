"""A recurrent weight that is computed from parameters, once for the whole forward: torch's own `cached`."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from recompute_lab.specimens.steps import NON_REENTRANT, Model, Run, power


class UnitRows(nn.Module):
    """Each row of a weight [M, N] scaled to length 1."""

    def forward(self, weight: Tensor) -> Tensor:
        return weight / weight.norm(dim=1, keepdim=True)


class Recurrent(Model):
    """Four sequences of eight vectors, [8, 4, 16], through a recurrent cell, in two segments.

    Inside of `parametrize.cached()`, `outer.weight` is computed when it is first asked for, and not again.
    """

    def build(self) -> None:
        self.stem, self.inner = nn.Linear(16, 16), nn.Linear(16, 16)
        self.outer = nn.Linear(16, 16, bias=False)
        parametrize.register_parametrization(self.outer, "weight", UnitRows())
        self.start = nn.Parameter(torch.randn(4, 16))

    def some(self, h: Tensor, inputs: Tensor) -> Tensor:
        for x in inputs:
            h = torch.tanh(self.inner(x) + self.outer(h))
        return h

    def step(self, run: Run = NON_REENTRANT) -> Tensor:
        h, inputs = self.start, self.stem(self.rows).view(8, 4, 16)
        with parametrize.cached():
            for part in inputs.chunk(2):
                h = run(self.some, h, part)
        loss = power(h)
        loss.backward()
        return loss.detach()
