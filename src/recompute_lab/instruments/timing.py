"""What a step costs in time: of runs that take turns, the median or the fastest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median
from time import perf_counter

import torch

from recompute_lab.instruments.device import accelerator


def seconds(
    *steps: Callable[[], object], rounds: int = 5, of: Callable[[Sequence[float]], float] = median
) -> list[float]:
    """The time of each step, on one thread of the CPU, or on the GPU until that is done: the median of its runs, after
    one run that is not counted.

    `of=min` is the fastest instead: other work on the machine only ever adds.

    The steps take turns, so that a slow moment of the machine hits all of them. What they do to
    their state stays done.
    """
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)  # two busy threads on two busy cores are slower, and less even
        times = [[_time(step) for step in steps] for _ in range(rounds + 1)][1:]
    finally:
        torch.set_num_threads(threads)
    return [of(column) for column in zip(*times, strict=True)]


def _time(step: Callable[[], object]) -> float:
    wait = module.synchronize if (module := accelerator()) else lambda: None  # a GPU is given work, and not waited for
    wait()
    start = perf_counter()
    step()
    wait()
    return perf_counter() - start
