"""A standardised weight, computed when it is first asked for and then kept for the step."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from recompute_lab.specimens.steps import NON_REENTRANT, Model, Run, power


class Standardised(Model):
    """A layer, [N, 16] -> [N, 16], each row of whose weight is shifted to mean 0 and scaled to length 1; for four
    micro-batches and one backward.

    Source: S. Qiao et al., "Micro-Batch Training with Batch-Channel Normalization and Weight Standardization", 2019.
    """

    def build(self) -> None:
        self.stem, self.out = nn.Linear(16, 16), nn.Linear(16, 16)
        self.weight, self.kept = nn.Parameter(torch.randn(16, 16)), None

    def standardised(self) -> Tensor:
        centred = self.weight - self.weight.mean(1, keepdim=True)
        return centred / centred.norm(dim=1, keepdim=True)

    def layer(self, x: Tensor) -> Tensor:
        if self.kept is None:
            self.kept = self.standardised()
        return self.out(torch.tanh(x @ self.kept.T))

    def step(self, run: Run = NON_REENTRANT) -> Tensor:
        self.kept = None
        y = [run(self.layer, self.stem(rows)) for rows in self.rows.chunk(4)]
        loss = power(torch.cat(y))
        loss.backward()
        return loss.detach()
