import contextlib

import torch


@contextlib.contextmanager
def scaled(x):
    small = x.abs().max().item() < 1e-3
    yield (x * 1e3 if small else x), small


def run(x):
    with scaled(x) as (y, small):
        out = y.softmax(-1)
        if small:
            out = out / 1e3
    return out


def build():
    return run


def inputs(flip=False):
    return (torch.full((3,), 1e-5 if flip else 1.0),)
