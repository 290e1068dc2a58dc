"""Root cause 3: the recomputation sees another world than the forward did. The caller has changed it in between.

The segment reads something that is no argument of it: which adapter is active, what a variable stands for, a mode.
"""

from __future__ import annotations

import torch
from torch import nn

from recompute_lab.specimens.steps import NON_REENTRANT, Model, Run, power


class Adapted(nn.Module):
    """A frozen layer with a small trainable one beside it for each task; `active` says which: [N, 16] -> [N, 16]."""

    def __init__(self, tasks: tuple[str, ...]):
        super().__init__()
        self.base = nn.Linear(16, 16).requires_grad_(False)
        self.adapters = nn.ModuleDict({task: nn.Linear(16, 16, bias=False) for task in tasks})
        self.active = tasks[0]

    def forward(self, x: torch.Tensor, task: str | None = None) -> torch.Tensor:
        adapter = self.adapters[task or self.active]
        return torch.tanh(self.base(x) + adapter(x))


class TwoTasks(Model):
    """One forward for each task, then one backward for both: all recomputations see the last task's adapter."""

    def build(self) -> None:
        self.stem, self.layer = nn.Linear(16, 16), Adapted(("summarise", "translate"))

    def step(self, run: Run = NON_REENTRANT) -> torch.Tensor:
        loss = torch.zeros(())
        for task, rows in zip(self.layer.adapters, self.rows.chunk(2), strict=True):
            loss = loss + power(self.adapted(run, self.stem(rows), task))
        loss.backward()
        return loss.detach()

    def adapted(self, run: Run, x: torch.Tensor, task: str) -> torch.Tensor:
        self.layer.active = task
        return run(self.layer, x)


class TwoTasksTold(TwoTasks):
    """Which adapter is an argument, and checkpointing keeps arguments."""

    def adapted(self, run: Run, x: torch.Tensor, task: str) -> torch.Tensor:
        return run(self.layer, x, task)


class InALoop(Model):
    """A closure over the loop's variable, which it looks up when it runs: in backward, that is the last layer."""

    def build(self) -> None:
        self.stem, self.layers = nn.Linear(16, 16), nn.ModuleList(nn.Linear(16, 16) for _ in range(3))

    def step(self, run: Run = NON_REENTRANT) -> torch.Tensor:
        x = self.stem(self.rows)
        for layer in self.layers:
            x = run(lambda t: t + torch.tanh(layer(t)), x)
        loss = power(x)
        loss.backward()
        return loss.detach()


class InALoopBound(InALoop):
    """A default argument is looked up when the function is made."""

    def step(self, run: Run = NON_REENTRANT) -> torch.Tensor:
        x = self.stem(self.rows)
        for layer in self.layers:
            x = run(lambda t, layer=layer: t + torch.tanh(layer(t)), x)
        loss = power(x)
        loss.backward()
        return loss.detach()


class Sharpened(nn.Module):
    """Dropout, then a softmax over columns; `temperature` follows a schedule: [N, 16] -> [N, 16]."""

    def __init__(self):
        super().__init__()
        self.scores, self.values, self.dropout = nn.Linear(16, 16), nn.Linear(16, 16), nn.Dropout(0.1)
        self.temperature, self.seen = 2.0, 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights = torch.softmax(self.dropout(self.scores(x)) / self.temperature, dim=1)
        return x + weights * self.values(x)


def logged(layer: Sharpened) -> None:
    """What the loop does after each forward: an evaluation, a schedule, a count."""
    layer.eval()
    layer.temperature *= 0.9
    layer.seen += 32
