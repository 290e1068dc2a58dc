"""Each row to one expert: the one with the highest score, whatever the last bits say."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from recompute_lab.specimens.steps import NON_REENTRANT, Model, Run, power


class Routed(Model):
    """Four experts, [N, 16] -> [N, 16]; each sees the rows that are sent to it, and no others.

    `rounded` stands for a kernel that adds up in no fixed order: it returns the scores with other last bits each time.
    Here it is the identity; who wants to see what comes of it puts something else in its place.

    Source: W. Fedus, B. Zoph, N. Shazeer, "Switch Transformers", JMLR 23, 2022, section 2.1.
    """

    def build(self) -> None:
        self.stem, self.router = nn.Linear(16, 16), nn.Linear(16, 4)
        self.experts = nn.ModuleList(nn.Linear(16, 16) for _ in range(4))
        self.rounded = nn.Identity()

    def routed(self, x: Tensor) -> Tensor:
        scores = self.rounded(self.router(x))
        return self.sent(x, scores, scores.argmax(1))

    def sent(self, x: Tensor, scores: Tensor, route: Tensor) -> Tensor:
        y = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            rows = (route == number).nonzero().flatten()
            y = y.index_add(0, rows, torch.tanh(expert(x[rows])))
        return x + y * torch.softmax(scores, 1).gather(1, route[:, None])

    def step(self, run: Run = NON_REENTRANT) -> Tensor:
        loss = power(run(self.routed, self.stem(self.rows)))
        loss.backward()
        return loss.detach()
