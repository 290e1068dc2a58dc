import torch
from torch import nn


class Flexible(nn.Module):
    def forward(self, x, **kwargs):
        scale = kwargs.pop("scale", 1.0)
        names = kwargs.pop("names", None)
        if kwargs:
            raise TypeError(f"unknown: {sorted(kwargs)}")
        if isinstance(scale, float) and scale != 1.0:
            x = x * scale
        if names and "norm" in names:
            x = x / x.norm()
        return x


def build():
    layer = Flexible()
    return lambda x: layer(x, scale=2.0, names=["norm"])


def inputs(flip=False):
    return (torch.tensor([1.0, 5.0 if flip else 2.0, 3.0]),)
