import torch
from torch import nn


class RmsScale(nn.Module):
    def forward(self, x):
        rms = x.square().mean().sqrt().item() or x.abs().max().item() + 1.0
        return x / rms


def build():
    return RmsScale()


def inputs(flip=False):
    return (torch.zeros(3) if flip else torch.ones(3),)
