import math
from dataclasses import dataclass

import torch
from torch import nn


@dataclass
class Settings:
    dropout: float = 0.1
    scale: float | None = None
    depth: int = 2
    tied: bool = True


class Block(nn.Module):
    def __init__(self, settings: Settings):
        super().__init__()
        self.settings = settings
        self.lin = nn.Linear(2, 2)
        self.scale = settings.scale or 1 / math.sqrt(2)
        self.alpha = nn.Parameter(torch.ones(())) if settings.tied else None

    def forward(self, x):
        s = self.settings
        if self.training and s.dropout > 0.5:
            x = torch.dropout(x, s.dropout, True)
        for _ in range(max(1, s.depth)):
            x = self.lin(x) * self.scale
        if self.alpha is not None and math.isclose(self.scale, 1.0):
            x = x * self.alpha
        return x if s.tied and not s.depth % 2 else -x


def build():
    torch.manual_seed(0)
    return Block(Settings())


def inputs(flip=False):
    return (torch.full((2,), -1.0 if flip else 1.0),)
