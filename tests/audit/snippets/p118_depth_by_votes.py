import torch
from torch import nn


class Deep(nn.Module):
    def __init__(self, thresholds=(0.1, 0.5, 2.0)):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(2, 2) for _ in range(3))
        self.thresholds = thresholds

    def forward(self, x):
        level = x.detach().abs().mean()
        depth = sum(int(level > t) for t in self.thresholds)
        for layer in self.layers[:depth]:
            x = layer(x)
        return x


def build():
    torch.manual_seed(0)
    return Deep()


def inputs(flip=False):
    return (torch.full((2,), 5.0 if flip else 0.01),)
