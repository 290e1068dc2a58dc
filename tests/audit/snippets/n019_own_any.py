import torch
from torch import nn


class Flags:
    def __init__(self, **flags):
        self._flags = flags

    def any(self):
        return any(self._flags.values())

    def item(self, name="norm"):
        return self._flags[name]

    def max(self):
        return max(self._flags)


class Config(nn.Module):
    def __init__(self):
        super().__init__()
        self.flags = Flags(norm=True, bias=False)

    def forward(self, x):
        if self.flags.any() and self.flags.item():
            x = x - x.mean()
        if self.flags.max() == "norm":
            x = x / x.abs().sum()
        return x


def build():
    return Config()


def inputs(flip=False):
    return (torch.tensor([1.0, 5.0 if flip else 2.0]),)
