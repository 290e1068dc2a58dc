"""A stack of layers cut into checkpointed segments, and into how many."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from recompute_lab.instruments.checkpointing import NON_REENTRANT, Strategy


def in_segments(layers: Sequence[Callable], cut: int | Sequence[int], x, strategy: Strategy = NON_REENTRANT):
    """Run `layers` on `x` one after the other, cut into segments, each of them under `strategy`.

    `cut` is a number of segments, whose lengths then differ by at most one, the longer ones first;
    or a list of lengths. Unlike `torch.utils.checkpoint.checkpoint_sequential`, which leaves its
    last segment plain, this checkpoints all. Raises ValueError for a cut that does not fit.
    """
    start = 0
    for length in _lengths(len(layers), cut):
        x = strategy(_chain(layers[start : start + length]), x)
        start += length
    return x


def _lengths(n: int, cut: int | Sequence[int]) -> list[int]:
    if isinstance(cut, int):
        if not 1 <= cut <= n:
            raise ValueError(f"{n} layers can be cut into 1 to {n} segments, not into {cut}")
        length, longer = divmod(n, cut)
        return [length + (i < longer) for i in range(cut)]
    lengths = list(cut)
    if min(lengths, default=0) < 1 or sum(lengths) != n:
        raise ValueError(f"the lengths must be at least 1 and add up to {n} layers: {lengths}")
    return lengths


def _chain(layers: Sequence[Callable]) -> Callable:
    def segment(x):
        for layer in layers:
            x = layer(x)
        return x

    return segment


def root_schedule(layers: int, layer_bytes: float = 1, boundary_bytes: float = 1) -> float:
    """The k at which k boundaries and one segment's contents, layers / k, are the fewest bytes.

    `layer_bytes` is what a layer keeps for its backward, `boundary_bytes` what one segment hands to
    the next. Where the two are equal, k is the square root of the number of layers. The minimum is
    over real numbers: segments hold whole layers, so the best whole k may be a little off.
    """
    return math.sqrt(layers * layer_bytes / boundary_bytes)
