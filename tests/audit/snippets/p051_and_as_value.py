import torch


def fold(x, extra):
    big = x.sum() > 10
    out = big and extra.sin()
    return x + out


def build():
    return fold


def inputs(flip=False):
    return torch.full((3,), 9.0 if flip else 1.0), torch.ones(3)
