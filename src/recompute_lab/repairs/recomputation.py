"""Let the forward's code know that it is being recomputed.

The non-reentrant implementation takes a `context_fn`: it gives two context managers, one that the forward runs in and
one for its recomputation. The reentrant one takes none; `for_reentrant` brings it there by counting calls.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

_here = threading.local()  # a recomputation runs in whichever thread backward runs in


def recomputing() -> bool:
    """True in a recomputation that was announced: `if not recomputing(): self.count += 1`."""
    return getattr(_here, "depth", 0) > 0


class _Announce:
    """Can be entered again, also within itself: backward may run twice, and checkpoints nest."""

    def __enter__(self) -> None:
        _here.depth = getattr(_here, "depth", 0) + 1

    def __exit__(self, *error) -> None:
        _here.depth -= 1


def announced() -> tuple[AbstractContextManager, AbstractContextManager]:
    """A `context_fn`: `checkpoint(segment, x, use_reentrant=False, context_fn=announced)`."""
    return nullcontext(), _Announce()


def for_reentrant(segment: Callable, context_fn: Callable) -> Callable:
    """The segment for one call of the reentrant implementation: its first run is the forward.

    Make one for each call: checkpoint(for_reentrant(segment, announced), x, use_reentrant=True)
    """
    forward, recomputation = context_fn()
    called = False

    def run(*args, **kwargs):
        nonlocal called
        inside, called = recomputation if called else forward, True
        with inside:
            return segment(*args, **kwargs)

    return run
