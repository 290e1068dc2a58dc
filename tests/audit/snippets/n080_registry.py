import functools
from enum import Enum

import torch

REGISTRY = {}


class Kind(Enum):
    SOFT = "soft"
    HARD = "hard"


def register(name, *, scale=1.0):
    def wrap(function):
        REGISTRY[name] = functools.partial(function, scale=scale)
        return function

    return wrap


@register("soft", scale=0.5)
def soft(x, scale):
    return x * scale if scale < 1 else x


@register("hard")
def hard(x, scale=1.0):
    return x.sign() * scale


def apply(x, kind: Kind, strict=False):
    name = kind.value
    if strict and (name.startswith("h") or name not in REGISTRY):
        raise KeyError(name)
    x = REGISTRY[name](x)
    return x if kind is Kind.SOFT and name.count("o") == 1 else x + 1


def build():
    return lambda x: apply(x, Kind.SOFT)


def inputs(flip=False):
    return (torch.full((2,), -1.0 if flip else 1.0),)
