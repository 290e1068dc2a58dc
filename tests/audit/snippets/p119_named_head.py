import torch
from torch import nn


class Heads(nn.Module):
    def __init__(self):
        super().__init__()
        self.heads = nn.ModuleDict({"hot": nn.Tanh(), "cold": nn.Sigmoid()})

    def forward(self, x):
        kind = "hot" if x.max() > 3 else "cold"
        return self.heads[kind](x)


def build():
    return Heads()


def inputs(flip=False):
    return (torch.full((2,), 5.0 if flip else 0.0),)
