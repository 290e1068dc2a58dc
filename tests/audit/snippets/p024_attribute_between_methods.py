import torch
import torch.nn as nn


class Gated(nn.Module):
    def __init__(self):
        super().__init__()
        self.score = nn.Linear(4, 1, bias=False)
        nn.init.ones_(self.score.weight)
        self.is_open = None

    def look(self, x):
        self.is_open = self.score(x).sum() > 0

    def forward(self, x):
        self.look(x)
        if self.is_open:
            x = x.sigmoid()
        return x


def build():
    return Gated()


def inputs(flip=False):
    return (torch.full((2, 4), -1.0 if flip else 1.0),)
