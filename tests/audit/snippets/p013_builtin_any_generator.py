import torch
from torch import nn


class Ladder(nn.Module):
    def __init__(self, depth=3):
        super().__init__()
        self.rungs = nn.ModuleList(nn.Linear(4, 4) for _ in range(depth))

    def forward(self, x):
        outs = [rung(x) for rung in self.rungs]
        if any(out.abs().max() > 5 for out in outs):
            outs = [out / 5 for out in outs]
        return torch.stack(outs).sum(0)


def build():
    torch.manual_seed(2)
    return Ladder()


def inputs(flip=False):
    return (torch.full((1, 4), 100.0 if flip else 0.1),)
