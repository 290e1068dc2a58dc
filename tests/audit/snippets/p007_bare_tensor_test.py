import torch
import torch.nn as nn


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 4)
        self.alpha = nn.Parameter(torch.zeros(()))

    def forward(self, x):
        opened = self.alpha.abs() + x.mean() > 0.5
        if opened:
            x = x + self.body(x)
        return x


def build():
    torch.manual_seed(1)
    return Residual()


def inputs(flip=False):
    return (torch.full((2, 4), 2.0 if flip else 0.0),)
