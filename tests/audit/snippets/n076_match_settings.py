from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Warmup:
    steps: int


@dataclass(frozen=True)
class Cosine:
    steps: int
    low: float = 0.1


def rate(schedule, step: int) -> float:
    match schedule:
        case Warmup(steps=n) if step < n:
            return step / n
        case Warmup():
            return 1.0
        case Cosine(steps=n, low=low):
            return max(low, 1 - step / n)
        case _:
            raise TypeError(schedule)


def update(x, grad, schedule, step=3):
    match x.shape:
        case (n,) if n > 1:
            grad = grad / n
        case ():
            grad = grad * 2
    return x - rate(schedule, step) * grad


def build():
    return lambda x: update(x, x * 2, Cosine(10))


def inputs(flip=False):
    return (torch.full((2,), -1.0 if flip else 1.0),)
