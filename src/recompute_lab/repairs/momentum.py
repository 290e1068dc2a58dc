"""The momentum for statistics that move several times per batch."""

from __future__ import annotations


def momentum_for(momentum: float, updates: int = 2) -> float:
    """The momentum with which `updates` equal updates move running statistics as one does with `momentum`.

    One update keeps the share 1 - m of the old value, k of them keep (1 - m)^k: so 1 - m' is the k-th root of 1 - m.
    Right to rounding for mean and variance, if and only if the updates of one batch follow each other and there are
    always as many; `num_batches_tracked` still counts each. Raises ValueError for a momentum outside 0 to 1, and for
    fewer than one update.
    """
    if not (isinstance(momentum, int | float) and 0 <= momentum <= 1):
        raise ValueError(f"a momentum is a number from 0 to 1 (None needs no repair); got {momentum!r}")
    if not updates >= 1:
        raise ValueError(f"statistics move at least once per step; got {updates} updates")
    return 1 - (1 - momentum) ** (1 / updates)
