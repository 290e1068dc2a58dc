import contextlib

import torch


@contextlib.contextmanager
def maybe_no_grad(enabled):
    if enabled:
        with torch.no_grad():
            yield True
    else:
        yield False


def forward(x, frozen=True):
    with maybe_no_grad(frozen) as off:
        y = x.sin()
    if off:
        y = y.detach()
    return y


def build():
    return forward


def inputs(flip=False):
    return (torch.tensor([1.0, 5.0 if flip else 2.0]),)
