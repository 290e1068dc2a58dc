import torch
from torch import nn


class KeyCache(nn.Module):
    def __init__(self, most=4, width=2):
        super().__init__()
        self.register_buffer("keys", torch.zeros(most, width))

    def forward(self, x, position: int = 0):
        slot = self.keys[position : position + x.shape[0]]
        slot.copy_(x.detach())
        return x @ self.keys.clone().mT


def build():
    return KeyCache()


def inputs(flip=False):
    return (torch.full((1, 2), -1.0 if flip else 1.0),)
