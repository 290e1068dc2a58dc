import functools
import inspect

import torch


def broadcastable(fn):
    wants = len(inspect.signature(fn).parameters)

    @functools.wraps(fn)
    def wrapper(*args):
        if len(args) < wants:
            args = args + (args[-1],) * (wants - len(args))
        if any(not isinstance(a, torch.Tensor) for a in args):
            args = tuple(torch.as_tensor(a) for a in args)
        return fn(*args)

    return wrapper


@broadcastable
def blend(a, b, weight):
    return torch.lerp(a, b, weight)


def build():
    return lambda x: blend(x, 0.5)


def inputs(flip=False):
    return (torch.tensor(-1.0 if flip else 1.0),)
