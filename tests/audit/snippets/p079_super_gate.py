import torch
import torch.nn as nn


class Base(nn.Module):
    def gate(self, x):
        return x.var() > 1.0


class Child(Base):
    def __init__(self):
        super().__init__()
        self.act = nn.GELU()

    def gate(self, x):
        return super().gate(x * 2)

    def forward(self, x):
        return self.act(x) if self.gate(x) else x


def build():
    return Child()


def inputs(flip=False):
    return (torch.tensor([0.0, 0.1, 50.0 if flip else 0.2]),)
