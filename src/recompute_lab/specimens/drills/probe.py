"""A validation loss, looked at between forward and backward, and the modes that it leaves."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from recompute_lab.specimens.steps import NON_REENTRANT, Model, Run, power


class Probed(Model):
    """A pretrained encoder, [N, 16] -> [N, 16], whose normalisation keeps its statistics: `norm` is in evaluation mode.

    `validation` is the loss on `unseen`, [32, 16], in evaluation mode.
    """

    def build(self) -> None:
        self.stem, self.norm = nn.Linear(16, 16), nn.BatchNorm1d(16)
        first, last = nn.Linear(16, 16), nn.Linear(16, 16)
        self.encoder = nn.Sequential(first, self.norm, nn.Tanh(), last)
        self.norm.running_mean.normal_()
        self.norm.running_var.uniform_(0.5, 2.0)
        self.unseen = torch.randn(32, 16)

    @torch.no_grad()
    def validated(self) -> Tensor:
        self.eval()
        value = power(self.encoder(self.stem(self.unseen)))
        self.train()
        return value

    def step(self, run: Run = NON_REENTRANT) -> Tensor:
        self.train()
        self.norm.eval()
        loss = power(run(self.encoder, self.stem(self.rows)))
        self.validation = self.validated()
        loss.backward()
        return loss.detach()
