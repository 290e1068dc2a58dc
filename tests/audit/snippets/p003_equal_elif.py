import torch
import torch.nn as nn


class Fuse(nn.Module):
    def __init__(self, mode="auto"):
        super().__init__()
        self.mode = mode

    def forward(self, left, right):
        if self.mode == "sum":
            return left + right
        elif torch.equal(left, right):
            return 2 * left
        else:
            return torch.logaddexp(left, right)


def build():
    return Fuse()


def inputs(flip=False):
    a = torch.linspace(0, 1, 4)
    return a, a.clone() if not flip else a + 1
