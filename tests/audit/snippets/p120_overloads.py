from typing import Protocol, overload

import torch


class Norm(Protocol):
    def __call__(self, x: torch.Tensor) -> torch.Tensor: ...


@overload
def centred(x: torch.Tensor) -> torch.Tensor: ...
@overload
def centred(x: torch.Tensor, norm: Norm) -> torch.Tensor: ...
def centred(x, norm=None):
    if norm is not None:
        x = norm(x)
    if x.mean().abs() > 1e-3:
        x = x - x.mean()
    return x


def build():
    return centred


def inputs(flip=False):
    return (torch.full((2,), 1.0 if flip else 0.0),)
