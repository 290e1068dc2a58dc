"""Suppress the second write: in the recomputation it goes to copies, which are thrown away."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

from torch import nn


def buffers_spared(module: nn.Module) -> Callable:
    """A `context_fn` in whose recomputation the forward of `module` writes to copies of its buffers.

    For statistics that are only written, BatchNorm's in train mode first of all: outputs and gradients do not depend on
    them, and the buffers are left as the forward left them. What the forward also reads needs `state_replayed`.

    Why not switch off `track_running_stats` in the recomputation? BatchNorm then saves two tensors fewer for
    backward, and non-reentrant checkpointing raises. Why not `eval()`? It would normalise with the running statistics.
    """
    spared = _Spared(module)
    return lambda: (nullcontext(), spared)


class _Spared:
    """Can be entered again, and within itself: backward may run twice, checkpoints nest."""

    def __init__(self, module: nn.Module):
        self._holders = [part._buffers for part in module.modules() if part._buffers]
        self._originals: list[list[dict]] = []

    def __enter__(self) -> None:
        self._originals.append([dict(holder) for holder in self._holders])
        for holder in self._holders:
            for name, buffer in holder.items():
                holder[name] = None if buffer is None else buffer.clone()

    def __exit__(self, *error) -> None:
        for holder, originals in zip(self._holders, self._originals.pop(), strict=True):
            holder.update(originals)
