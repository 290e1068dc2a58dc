import functools

import torch


def retry_in_double(fn):
    @functools.wraps(fn)
    def wrapper(x):
        out = fn(x)
        if not torch.isfinite(out).all():
            out = fn(x.double()).to(x.dtype)
        return out

    return wrapper


@retry_in_double
def cube(x):
    return x**3 / x.norm()


def build():
    return cube


def inputs(flip=False):
    return (torch.tensor([1e15 if flip else 1.0, 1.0]),)
