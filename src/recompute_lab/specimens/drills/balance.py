"""A balance loss that the layers add up on the side."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from recompute_lab.specimens.steps import NON_REENTRANT, Model, Run, power


class Balanced(Model):
    """Two experts and a router, [N, 16] -> [N, 16], for two micro-batches.

    The balance loss is smallest where both experts have equal shares. Source: N. Shazeer et al., "Outrageously Large
    Neural Networks", ICLR 2017, section 4.
    """

    def build(self) -> None:
        self.stem, self.router = nn.Linear(16, 16), nn.Linear(16, 2)
        self.first, self.second = nn.Linear(16, 16), nn.Linear(16, 16)
        self.balance = torch.zeros(())

    def mixed(self, x: Tensor) -> Tensor:
        shares = torch.softmax(self.router(x), dim=1)
        self.balance = self.balance + shares.mean(0).square().sum()
        return self.experts(x, shares)

    def experts(self, x: Tensor, shares: Tensor) -> Tensor:
        first, second = torch.tanh(self.first(x)), torch.tanh(self.second(x))
        return x + shares[:, :1] * first + shares[:, 1:] * second

    def step(self, run: Run = NON_REENTRANT) -> Tensor:
        self.balance = torch.zeros(())
        y = [run(self.mixed, self.stem(rows)) for rows in self.rows.chunk(2)]
        loss = power(torch.cat(y)) + self.balance
        loss.backward()
        self.logged = float(self.balance.detach())
        return loss.detach()
