import torch
from torch import nn


class Scratch(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("scratch", torch.zeros(3), persistent=False)

    def forward(self, x):
        with torch.no_grad():
            torch.mul(x, 2, out=self.scratch)
        return x + self.scratch


def build():
    return Scratch()


def inputs(flip=False):
    return (torch.full((3,), -1.0 if flip else 1.0),)
