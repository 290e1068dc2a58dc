import torch
from torch import nn


class Gate(nn.Module):
    def __init__(self, gated=True):
        super().__init__()
        self.gated = gated
        self.lin = nn.Linear(2, 2)

    def forward(self, x, y=None):
        open_ = positive = x.sum() > 0
        if y is None:
            y = x
        if self.gated:
            if positive:
                y = self.lin(y)
        return y, open_


def build():
    torch.manual_seed(0)
    return Gate()


def inputs(flip=False):
    return (torch.full((2,), -1.0 if flip else 1.0),)
