"""Root cause 6: the weights are others when the recomputation reads them. A checkpointed segment saves none of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from recompute_lab.specimens.steps import NON_REENTRANT, Block, Model, Run, power


class Sharded(nn.Module):
    """A layer whose weight is kept in two halves, on two machines say, and whole only while somebody asks for it."""

    def __init__(self):
        super().__init__()
        self.halves = nn.ParameterList(nn.Parameter(torch.randn(8, 16) / 4) for _ in range(2))
        self.weight = self.halves[0].detach()  # what this machine keeps

    @contextmanager
    def gathered(self) -> Iterator[None]:
        self.weight = torch.cat(list(self.halves))
        try:
            yield
        finally:
            self.weight = self.halves[0].detach()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.tanh(x @ self.weight.T)


class Gathered(Model):
    """The caller gathers the weight around the forward. In backward nobody does, and a half is found in its place."""

    def build(self) -> None:
        self.stem, self.sharded = nn.Linear(16, 16), Sharded()

    def step(self, run: Run = NON_REENTRANT) -> torch.Tensor:
        loss = power(self.through(run, self.stem(self.rows)))
        loss.backward()
        return loss.detach()

    def through(self, run: Run, x: torch.Tensor) -> torch.Tensor:
        with self.sharded.gathered():
            return run(self.sharded, x)


class GatheredInside(Gathered):
    """Gathering is part of the segment, so both passes do it."""

    def through(self, run: Run, x: torch.Tensor) -> torch.Tensor:
        def segment(x):
            with self.sharded.gathered():
                return self.sharded(x)

        return run(segment, x)


class Adversarial(Model):
    """The critic takes its step between the generator's forward and its backward.

    The plain run refuses: autograd has saved the critic's weights, and sees that they were changed in place. A
    checkpointed critic has saved none.
    """

    def build(self) -> None:
        self.generator, self.critic, self.judge = nn.Linear(16, 16), Block(), nn.Linear(16, 1)

    def step(self, run: Run = NON_REENTRANT) -> torch.Tensor:
        optimizer = torch.optim.SGD(self.critic.parameters(), lr=0.5)
        fake = self.generator(self.rows)
        loss = -self.judge(run(self.critic, fake)).mean()
        self.critics_turn(optimizer, fake.detach())
        self.generators_turn(loss)
        return loss.detach()

    def critics_turn(self, optimizer: torch.optim.Optimizer, fake: torch.Tensor) -> None:
        margin = self.judge(self.critic(fake)) - self.judge(self.critic(self.rows))
        margin.mean().backward(inputs=list(self.critic.parameters()))
        optimizer.step()

    def generators_turn(self, loss: torch.Tensor) -> None:
        self.zero_grad()
        loss.backward()


class AdversarialInTurn(Adversarial):
    """The generator's backward comes first; only then does the critic learn. Gradients are those of one step each."""

    def step(self, run: Run = NON_REENTRANT) -> torch.Tensor:
        optimizer = torch.optim.SGD(self.critic.parameters(), lr=0.5)
        fake = self.generator(self.rows)
        loss = -self.judge(run(self.critic, fake)).mean()
        self.generators_turn(loss)
        gradients = [p.grad for p in self.parameters()]
        self.zero_grad()
        self.critics_turn(optimizer, fake.detach())
        for parameter, gradient in zip(self.parameters(), gradients, strict=True):
            parameter.grad = gradient  # the generator's, for whoever looks
        return loss.detach()
