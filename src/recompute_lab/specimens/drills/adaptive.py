"""Two losses, weighed by their gradients at the decoder's last layer."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from recompute_lab.specimens.steps import NON_REENTRANT, Block, Model, Run, power


class Weighed(Model):
    """A decoder, [N, 16] -> [N, 16], that shall be near to `rows` and please a critic, which is frozen.

    Source: P. Esser, R. Rombach, B. Ommer, "Taming Transformers for High-Resolution Image Synthesis", CVPR 2021, eq. 7.
    """

    def build(self) -> None:
        self.stem, self.block, self.last = nn.Linear(16, 16), Block(), nn.Linear(16, 16)
        self.critic = nn.Linear(16, 1).requires_grad_(False)

    def decoder(self, x: Tensor) -> Tensor:
        return self.last(self.block(x))

    def length(self, loss: Tensor) -> Tensor:
        """Of the loss's gradient at the last layer."""
        weight = self.last.weight
        return torch.autograd.grad(loss, weight, retain_graph=True)[0].norm()

    def step(self, run: Run = NON_REENTRANT) -> Tensor:
        y = run(self.decoder, self.stem(self.rows))
        near, displeased = power(y - self.rows), -self.critic(y).mean()
        self.share = self.length(near) / (self.length(displeased) + 1e-4)
        loss = near + self.share * displeased
        loss.backward()
        return loss.detach()
