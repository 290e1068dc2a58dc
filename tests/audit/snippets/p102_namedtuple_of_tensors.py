from collections import namedtuple

import torch

Stats = namedtuple("Stats", ["mean", "top"])


def measure(x: torch.Tensor):
    return Stats(x.mean(), x.max())


def squash(x):
    stats = measure(x)
    if stats.top > 1:
        x = x.tanh()
    return x - stats.mean


def build():
    return squash


def inputs(flip=False):
    return (torch.full((3,), 2.0 if flip else 0.5),)
