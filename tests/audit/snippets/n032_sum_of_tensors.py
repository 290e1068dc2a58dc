import torch
from torch import nn


class Ensemble(nn.Module):
    def __init__(self):
        super().__init__()
        self.members = nn.ModuleList(nn.Linear(2, 1) for _ in range(3))

    def forward(self, x):
        outs = [m(x) for m in self.members]
        total = sum(outs) / len(outs)
        spread = sum((o - total).square() for o in outs)
        return total, spread.sqrt()


def build():
    torch.manual_seed(0)
    return Ensemble()


def inputs(flip=False):
    return (torch.full((1, 2), -1.0 if flip else 1.0),)
