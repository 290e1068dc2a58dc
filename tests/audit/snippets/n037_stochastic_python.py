import random

import torch
from torch import nn


class DropPath(nn.Module):
    def __init__(self, rate=0.5):
        super().__init__()
        self.rate = rate

    def forward(self, x):
        rng = random.Random(3)
        if self.training and rng.random() < self.rate:
            return x
        scale = 1.0 / (1.0 - rng.choice([0.1, 0.2]))
        return x * scale if scale > 1 else x


def build():
    return DropPath()


def inputs(flip=False):
    return (torch.full((1, 3), -1.0 if flip else 1.0),)
