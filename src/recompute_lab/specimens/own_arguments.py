"""Root cause 4: the forward changes its own arguments. Checkpointing keeps them, and hands the same ones out again."""

from __future__ import annotations

import torch
from torch import nn

from recompute_lab.specimens.steps import NON_REENTRANT, Model, Run, power


class Biased(nn.Module):
    """Attention over rows with an optional bias, taken from a dict of extras: ([N, 16], dict) -> [N, 16]."""

    def __init__(self):
        super().__init__()
        self.query, self.key, self.slope = nn.Linear(16, 16), nn.Linear(16, 16), nn.Parameter(torch.ones(()))

    def forward(self, x: torch.Tensor, extras: dict) -> torch.Tensor:
        bias = self.take(extras, "bias")
        scores = self.query(x) @ self.key(x).T / 4
        if bias is not None:
            scores = scores + self.slope * bias
        return x + torch.softmax(scores, dim=1) @ x

    def take(self, extras: dict, name: str) -> torch.Tensor | None:
        return extras.pop(name, None)


class BiasedReading(Biased):
    """Reads, and leaves the dict alone."""

    def take(self, extras: dict, name: str) -> torch.Tensor | None:
        return extras.get(name)


class Popped(Model):
    """The forward takes the bias out of the dict. The recomputation is given the same dict, without it."""

    block = Biased

    def build(self) -> None:
        self.stem, self.attention = nn.Linear(16, 16), self.block()
        place = torch.arange(32.0)
        self.distance = -(place[:, None] - place).abs() / 8

    def step(self, run: Run = NON_REENTRANT) -> torch.Tensor:
        loss = power(run(self.attention, self.stem(self.rows), {"bias": self.distance}))
        loss.backward()
        return loss.detach()


class PoppedNoMore(Popped):
    block = BiasedReading


class Positioned(nn.Module):
    """Adds a position to x, in place, to save a copy: [N, 16] -> [N, 16]."""

    def __init__(self):
        super().__init__()
        self.position, self.layer = nn.Parameter(torch.randn(32, 16)), nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x += self.position
        return torch.tanh(self.layer(x))


class PositionedAside(Positioned):
    """The sum is a tensor of its own."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.layer(x + self.position))


class InPlace(Model):
    """Without checkpointing nobody needs the old x, and autograd has no objection."""

    block = Positioned

    def build(self) -> None:
        self.stem, self.positioned = nn.Linear(16, 16), self.block()

    def step(self, run: Run = NON_REENTRANT) -> torch.Tensor:
        loss = power(run(self.positioned, self.stem(self.rows)))
        loss.backward()
        return loss.detach()


class InPlaceNoMore(InPlace):
    block = PositionedAside
