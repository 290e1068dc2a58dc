import torch
from torch import nn


class Rope(nn.Module):
    def forward(self, x, cache):
        angles = torch.arange(x.shape[-1]) / x.shape[-1]
        setattr(self, f"angles_{x.dim()}", angles)
        cache["angles"] = angles
        return x * angles.cos()


def build():
    return Rope()


def inputs(flip=False):
    return torch.full((3,), -1.0 if flip else 1.0), {}
