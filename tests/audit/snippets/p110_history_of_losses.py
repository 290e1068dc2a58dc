from dataclasses import dataclass, field

import torch


@dataclass
class History:
    losses: list[float] = field(default_factory=list)
    every: int = 1

    def add(self, loss: torch.Tensor):
        self.losses.append(loss.item())

    def worse(self):
        return len(self.losses) > 1 and self.losses[-1] > self.losses[0]


def two_steps(x):
    history = History()
    history.add(x.pow(2).mean())
    x = x * 0.5 + 1
    history.add(x.pow(2).mean())
    if history.worse():
        x = x - 1
    return x


def build():
    return two_steps


def inputs(flip=False):
    return (torch.full((3,), 10.0 if flip else 0.1),)
