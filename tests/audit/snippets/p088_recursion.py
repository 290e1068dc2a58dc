import torch


def squash(x, depth=0):
    if depth > 8:
        return x
    if x.norm() > 1:
        return squash(x / 2, depth + 1)
    return x.exp()


def build():
    return squash


def inputs(flip=False):
    return (torch.full((4,), 5.0 if flip else 0.1),)
