"""What a step costs in time: of runs that take turns, the median or the fastest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median
from time import perf_counter

import torch


def seconds(
    *steps: Callable[[], object], rounds: int = 5, of: Callable[[Sequence[float]], float] = median
) -> list[float]:
    """The time of each step, on one thread of the CPU: the median of its runs, after one run that is not counted.

    `of=min` is the fastest instead: other work on the machine only ever adds.

    The steps take turns, so that a slow moment of the machine hits all of them. What they do to
    their state stays done. For work on a GPU, let the step wait for it (`torch.cuda.synchronize`).
    """
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)  # two busy threads on two busy cores are slower, and less even
        times = [[_time(step) for step in steps] for _ in range(rounds + 1)][1:]
    finally:
        torch.set_num_threads(threads)
    return [of(column) for column in zip(*times, strict=True)]


def _time(step: Callable[[], object]) -> float:
    start = perf_counter()
    step()
    return perf_counter() - start
