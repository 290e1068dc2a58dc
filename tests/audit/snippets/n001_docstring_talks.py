import torch


def gate(x):
    """Older form::

        if x.any():
            x = x / x.max().item()

    The branch is gone.
    """
    # if torch.isnan(x).any(): raise ValueError
    return x / x.abs().amax().clamp(min=1.0)


def build():
    return gate


def inputs(flip=False):
    return (torch.tensor([1.0, -5.0 if flip else 5.0]),)
