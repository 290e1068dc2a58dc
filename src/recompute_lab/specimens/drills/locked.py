"""A dropout mask that both passes agree on, since the forward seeds the generator."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from recompute_lab.specimens.steps import NON_REENTRANT, Model, Run, power


class Locked(Model):
    """Four sequences of eight vectors, [8, 4, 16], through a recurrent cell, in two segments.

    One mask for all steps of a sequence. Source: Y. Gal, Z. Ghahramani, "A Theoretically Grounded Application of
    Dropout in Recurrent Neural Networks", NeurIPS 2016.
    """

    def build(self) -> None:
        self.stem, self.inner, self.outer = (nn.Linear(16, 16) for _ in range(3))
        self.start, self.p = nn.Parameter(torch.randn(4, 16)), 0.25

    def mask(self, h: Tensor) -> Tensor:
        if not self.training:
            return torch.ones_like(h)
        torch.manual_seed(1234)
        return (torch.rand(h.shape) >= self.p) / (1 - self.p)

    def some(self, h: Tensor, inputs: Tensor) -> Tensor:
        return self.through(h, inputs, self.mask(h))

    def through(self, h: Tensor, inputs: Tensor, mask: Tensor) -> Tensor:
        for x in inputs:
            h = torch.tanh(self.inner(x) + self.outer(h * mask))
        return h

    def step(self, run: Run = NON_REENTRANT) -> Tensor:
        h, inputs = self.start, self.stem(self.rows).view(8, 4, 16)
        for part in inputs.chunk(2):
            h = run(self.some, h, part)
        loss = power(h)
        loss.backward()
        return loss.detach()
