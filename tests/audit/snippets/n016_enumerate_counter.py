import torch
from torch import nn


class Interleave(nn.Module):
    def __init__(self, depth=4, every=2):
        super().__init__()
        self.every = every
        self.layers = nn.ModuleList(nn.Linear(2, 2) for _ in range(depth))

    def forward(self, x):
        residual = x
        for index, layer in enumerate(self.layers):
            x = layer(x)
            if (index + 1) % self.every == 0:
                x = x + residual
                residual = x
            elif index == len(self.layers) - 1:
                x = x.tanh()
        return x


def build():
    torch.manual_seed(0)
    return Interleave()


def inputs(flip=False):
    return (torch.full((1, 2), -1.0 if flip else 1.0),)
