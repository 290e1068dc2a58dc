import torch


def grow(x):
    return x * x


def shrink(x):
    return x.sqrt()


def adapt(x):
    ways = {True: grow, False: shrink}
    return ways[(x < 1).all().item()](x)


def build():
    return adapt


def inputs(flip=False):
    return (torch.full((2,), 0.5 if flip else 4.0),)
