"""Move the boundary: what must run once stands between the checkpointed segments, not in them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.checkpoint import checkpoint

NON_REENTRANT = partial(checkpoint, use_reentrant=False)


def has_batchnorm(layer: Callable) -> bool:
    """True for a module that is a BatchNorm or contains one; InstanceNorm, which can write too, is none."""
    return isinstance(layer, nn.Module) and any(isinstance(m, _BatchNorm) for m in layer.modules())


def checkpointed_between(
    layers: Iterable[Callable],
    x: torch.Tensor,
    *,
    outside: Callable[[Callable], bool] = has_batchnorm,
    run: Callable = NON_REENTRANT,
) -> torch.Tensor:
    """Run `layers` on `x`, one after the other; those for which `outside(layer)` is true once, the stretches between
    them as checkpointed segments, each by `run(segment, x)`.

    It costs the memory that the layers outside save for backward.
    """
    stretch: list[Callable] = []
    for layer in layers:
        if outside(layer):
            x = layer(_through(stretch, x, run))
            stretch = []
        else:
            stretch.append(layer)
    return _through(stretch, x, run)


def _through(stretch: list[Callable], x: torch.Tensor, run: Callable) -> torch.Tensor:
    def segment(x):
        for layer in stretch:
            x = layer(x)
        return x

    return run(segment, x) if stretch else x
