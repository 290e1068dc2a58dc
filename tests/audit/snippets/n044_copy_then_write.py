import torch
from torch import nn


class Shift(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("bias", torch.ones(3))

    def forward(self, x, options: dict | None = None):
        options = dict(options or {})
        options["seen"] = True
        y = x.clone()
        y[:, 0] = 0
        y = y * 2
        y += 1
        bias = self.bias.detach().clone()
        bias.mul_(3)
        return y + bias


def build():
    return Shift()


def inputs(flip=False):
    return (torch.full((1, 3), -1.0 if flip else 1.0),)
