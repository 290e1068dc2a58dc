import torch
from torch import nn

LINEAR = {"none", "identity"}


class Act(nn.Module):
    def __init__(self, name: str):
        super().__init__()
        self.name = name
        self.extra = nn.ModuleDict({"tanh": nn.Tanh(), "relu": nn.ReLU()})

    def forward(self, x):
        if self.name in LINEAR:
            return x
        if self.name not in self.extra:
            raise KeyError(self.name)
        return self.extra[self.name](x)


def build():
    return Act("tanh")


def inputs(flip=False):
    return (torch.full((2,), -1.0 if flip else 1.0),)
