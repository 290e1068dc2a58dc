import torch
import torch.nn as nn


class OverflowMixin:
    ceiling = 6e4

    def overflowed(self, *tensors):
        return any(t.isinf().any().item() or t.abs().max().item() > self.ceiling for t in tensors)


class Feed(OverflowMixin, nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(2, 4)

    def forward(self, x):
        h = self.up(x)
        if self.overflowed(x, h):
            h = h.clamp(-self.ceiling, self.ceiling)
        return h


def build():
    torch.manual_seed(0)
    return Feed()


def inputs(flip=False):
    return (torch.full((1, 2), 1e9 if flip else 1.0),)
