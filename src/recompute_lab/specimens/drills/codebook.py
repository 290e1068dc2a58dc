"""A codebook that follows what is looked up in it."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from recompute_lab.specimens.steps import NON_REENTRANT, Model, Run, power


class Quantised(Model):
    """Each encoded row is replaced by the nearest of eight codes; in training the codes move towards what chose them.

    Source: A. van den Oord et al., "Neural Discrete Representation Learning", NeurIPS 2017, appendix A.1.
    """

    def build(self) -> None:
        self.stem, self.encoder, self.decoder = (nn.Linear(16, 16) for _ in range(3))
        self.register_buffer("codes", 0.5 * torch.randn(8, 16))

    def quantised(self, x: Tensor) -> tuple[Tensor, Tensor]:
        z = self.encoder(x)
        nearest = self.nearest(z.detach())
        code = self.codes[nearest]
        if self.training:
            self.follow(z.detach(), nearest)
        return self.decoder(z + (code - z).detach()), power(z - code)

    def nearest(self, z: Tensor) -> Tensor:
        return (z[:, None] - self.codes).square().sum(2).argmin(1)

    def follow(self, z: Tensor, nearest: Tensor) -> None:
        chosen = one_hot(nearest, 8).float()
        counts = chosen.sum(0)[:, None]
        means = chosen.T @ z / counts.clamp(min=1)
        self.codes.lerp_(torch.where(counts > 0, means, self.codes), 0.2)

    def step(self, run: Run = NON_REENTRANT) -> Tensor:
        y, commitment = run(self.quantised, self.stem(self.rows))
        loss = power(y - self.rows) + commitment
        loss.backward()
        return loss.detach()
