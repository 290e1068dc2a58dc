import torch
from torch import nn


@torch.no_grad()
def ema_(target, source, decay=0.9):
    target.mul_(decay).add_(source, alpha=1 - decay)


class Teacher(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("shadow", torch.zeros(2))

    def forward(self, x):
        ema_(self.shadow, x.mean(0))
        return x - self.shadow


def build():
    return Teacher()


def inputs(flip=False):
    return (torch.full((3, 2), -1.0 if flip else 1.0),)
