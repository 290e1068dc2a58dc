import torch
import torch.nn as nn


class Loraish(nn.Module):
    def __init__(self, rank=2):
        super().__init__()
        self.base = nn.Linear(3, 3, bias=False)
        self.rank = rank
        self.scaling = 1.0 / rank if rank > 0 else 0.0
        self.merged = False

    def forward(self, x):
        out = self.base(x)
        if self.base.bias is not None:
            out = out - self.base.bias
        if self.rank > 0 and not self.merged and self.base.weight.shape[0] == 3:
            out = out + self.scaling * x
        return out if self.base.in_features == 3 else out * 2


def build():
    torch.manual_seed(0)
    return Loraish()


def inputs(flip=False):
    return (torch.full((1, 3), -1.0 if flip else 1.0),)
