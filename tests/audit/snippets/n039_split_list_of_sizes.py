import torch
from torch import nn


class GatedUnit(nn.Module):
    def __init__(self, parts=2):
        super().__init__()
        self.parts = parts

    def forward(self, x):
        pieces = x.split(x.shape[-1] // self.parts, dim=-1)
        if len(pieces) != self.parts:
            raise ValueError("the width does not divide")
        value, *gates = pieces
        for i, gate in enumerate(gates):
            value = value * (gate.sigmoid() if i == 0 else gate)
        return value


def build():
    return GatedUnit()


def inputs(flip=False):
    return (torch.full((1, 4), -1.0 if flip else 1.0),)
