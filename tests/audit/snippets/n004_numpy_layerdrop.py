import numpy as np
import torch
from torch import nn


class Drops(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(2, 2) for _ in range(2))

    def forward(self, x):
        np.random.seed(0)
        for layer in self.layers:
            p = np.random.uniform(0, 1)
            if self.training and p < 0.1:
                continue
            x = layer(x)
        return x


def build():
    torch.manual_seed(0)
    return Drops()


def inputs(flip=False):
    return (torch.full((1, 2), -1.0 if flip else 1.0),)
