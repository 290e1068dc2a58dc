import torch
from torch import nn


class Wrapped(nn.Module):
    def __init__(self, inner=None, norm=nn.LayerNorm):
        super().__init__()
        self.inner = inner or nn.Identity()
        self.norm = norm(2) if norm else None
        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        if self.norm:
            x = self.norm(x)
        if isinstance(self.inner, nn.Identity) or not self.drop.p:
            return x
        return self.inner(x) if callable(self.inner) else x


def build():
    return Wrapped(nn.Tanh())


def inputs(flip=False):
    return (torch.tensor([[1.0, 5.0 if flip else 2.0]]),)
