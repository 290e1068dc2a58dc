"""A decoder that takes the encoder's output from an attribute."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from recompute_lab.specimens.steps import NON_REENTRANT, Model, Run, power


class Translator(Model):
    """Two decoder layers, [N, 16] -> [N, 16], that look at `memory`, the encoded source, [24, 16]."""

    def build(self) -> None:
        self.stem, self.encoder = nn.Linear(16, 16), nn.Linear(16, 16)
        self.queries = nn.ModuleList(nn.Linear(16, 16) for _ in range(2))
        self.source = torch.randn(24, 16)

    def layer(self, x: Tensor, depth: int) -> Tensor:
        return self.looking(x, self.memory, depth)

    def looking(self, x: Tensor, memory: Tensor, depth: int) -> Tensor:
        scores = self.queries[depth](x) @ memory.T / 4
        return x + torch.softmax(scores, dim=1) @ memory

    def step(self, run: Run = NON_REENTRANT) -> Tensor:
        self.memory = torch.tanh(self.encoder(self.source))
        x = self.stem(self.rows)
        for depth in range(2):
            x = run(self.layer, x, depth)
        loss = power(x)
        loss.backward()
        return loss.detach()
