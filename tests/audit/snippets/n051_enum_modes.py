import enum

import torch
from torch import nn


class Mode(enum.Enum):
    MEAN = "mean"
    MAX = "max"


class Pool(nn.Module):
    def __init__(self, mode=Mode.MAX):
        super().__init__()
        self.mode = mode

    def forward(self, x):
        if self.mode is Mode.MEAN or self.mode.value == "mean":
            return x.mean(1)
        if self.mode == Mode.MAX:
            return x.max(1).values
        raise AssertionError(self.mode)


def build():
    return Pool()


def inputs(flip=False):
    return (torch.tensor([[1.0, 5.0 if flip else 2.0]]),)
