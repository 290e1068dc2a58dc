import torch
from torch import nn

SEEN_OVERFLOW = False


def note(x):
    global SEEN_OVERFLOW
    SEEN_OVERFLOW = bool((x > 100).any())


class Careful(nn.Module):
    def forward(self, x):
        note(x)
        if SEEN_OVERFLOW:
            return x / 100
        return x


def build():
    return Careful()


def inputs(flip=False):
    return (torch.tensor([1.0, 1000.0 if flip else 2.0]),)
