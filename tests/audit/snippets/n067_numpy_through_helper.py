import numpy as np
import torch
from torch import nn


def plan(depth, seed=0):
    rng = np.random.default_rng(seed)
    return rng.random(depth) < 0.5


class Planned(nn.Module):
    def __init__(self, depth=3):
        super().__init__()
        self.skip = plan(depth)
        self.order = np.argsort(np.linspace(1, 0, depth))
        self.layers = nn.ModuleList(nn.Linear(2, 2) for _ in range(depth))

    def forward(self, x):
        if self.skip.all():
            return x
        for i in self.order:
            if self.skip[i]:
                continue
            x = self.layers[i](x)
        return x


def build():
    torch.manual_seed(0)
    return Planned()


def inputs(flip=False):
    return (torch.full((1, 2), -1.0 if flip else 1.0),)
