import operator

import torch

CHECKS = ((operator.gt, 0.0), (operator.lt, 5.0))


def inside(x):
    total = x.sum()
    verdicts = [check(total, bound) for check, bound in CHECKS]
    if all(verdicts):
        return x.sqrt()
    return x.clamp(0, 5)


def build():
    return inside


def inputs(flip=False):
    return (torch.tensor([1.0, 90.0 if flip else 1.0]),)
