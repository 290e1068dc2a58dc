import torch
from torch import nn

_TABLES = {}


def table(n):
    if n not in _TABLES:
        _TABLES[n] = torch.arange(n).float()
    return _TABLES[n]


class Positions(nn.Module):
    def forward(self, x):
        return x + table(x.shape[-1])


def build():
    return Positions()


def inputs(flip=False):
    return (torch.full((5,) if False else (3,), -1.0 if flip else 1.0),)
