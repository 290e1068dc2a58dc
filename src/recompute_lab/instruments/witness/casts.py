"""Autocast keeps a copy of each weight that it has cast, for as long as its block lasts; the recomputation has none."""

from __future__ import annotations

import torch
from torch.utils._python_dispatch import TorchDispatchMode


class CastCounter(TorchDispatchMode):
    """Inside, `casts` counts the conversions from one dtype to another."""

    def __init__(self):
        super().__init__()
        self.casts = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function is torch.ops.aten._to_copy.default:
            self.casts += 1
        return function(*args, **(kwargs or {}))


def autocast_is_on() -> bool:
    """On some kind of device, with its cache."""
    kinds = ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",)
    return torch.is_autocast_cache_enabled() and any(map(torch.is_autocast_enabled, kinds))
