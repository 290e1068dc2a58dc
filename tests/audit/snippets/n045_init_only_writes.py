import torch
from torch import nn


class Sinusoid(nn.Module):
    registry: dict = {}

    def __init__(self, width=4):
        super().__init__()
        self.count = 0
        self.names = []
        self.names.append("sin")
        self.registry[width] = "sinusoid"
        table = torch.zeros(8, width)
        table[:, 0::2] = torch.arange(8).float().unsqueeze(1).sin()
        self.register_buffer("table", table)
        self.reset_parameters()

    def reset_parameters(self):
        with torch.no_grad():
            self.table.mul_(0.5)
        self.count += 1

    def forward(self, x):
        return x + self.table[: x.shape[0]]


def build():
    return Sinusoid()


def inputs(flip=False):
    return (torch.full((2, 4), -1.0 if flip else 1.0),)
