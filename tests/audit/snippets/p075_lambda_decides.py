import torch


def chooser(limit):
    too_big = lambda t: t.abs().max() > limit  # noqa: E731

    def apply(x):
        if too_big(x):
            return x.tanh()
        return x

    return apply


def build():
    return chooser(2.0)


def inputs(flip=False):
    return (torch.tensor([1.0, -3.0 if flip else 1.0]),)
