import torch
import torch.nn as nn


class Centre(nn.Module):
    def __init__(self, width=3):
        super().__init__()
        self.register_buffer("mean", torch.zeros(width))

    def forward(self, x):
        if self.training:
            self.mean.lerp_(x.detach().mean(0), 0.1)
        return x - self.mean


def build():
    return Centre()


def inputs(flip=False):
    return (torch.full((2, 3), 3.0 if flip else 1.0),)
