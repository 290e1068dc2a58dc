import torch


def refinements(x, most=8):
    for _ in range(most):
        x = x / 2
        yield x
        if x.abs().sum() < 1:
            return


def build():
    return lambda x: torch.stack(list(refinements(x))).sum(0)


def inputs(flip=False):
    return (torch.full((4,), 8.0 if flip else 0.1),)
