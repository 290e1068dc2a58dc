import torch
import torch.nn as nn


class Strict(nn.Module):
    def forward(self, x, valid):
        rows = valid.unbind(0)
        if not all(map(bool, rows)):
            raise ValueError("a row is not valid")
        return x.log1p()


def build():
    return Strict()


def inputs(flip=False):
    return torch.ones(2), torch.tensor([1, 0 if flip else 1])
