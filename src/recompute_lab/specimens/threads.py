"""A number of threads for a while."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def threads(number: int) -> Iterator[None]:
    """torch computes with `number` threads inside, and with as many as before afterwards."""
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(number)
        yield
    finally:
        torch.set_num_threads(before)
