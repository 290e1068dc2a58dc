"""Lesson 02, what one could have watched: training runs that die and that live, and statistics that may tell."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache

import torch

from recompute_lab.instruments.checkpointing import NON_REENTRANT
from recompute_lab.instruments.nondeterminism import Nudge
from recompute_lab.specimens.training import DigitRun, Step

LOW, HIGH = 1.2, 3.0  # two caps: updates grow past the first, and in these steps rarely reach the second
STEPS = 40

# A larger value is a worse sign: a loss that falls is one, since the ratios grow as training goes on.
STATISTICS: dict[str, Callable[[Step], float]] = {
    "loss, falling": lambda step: -step.loss,
    "gradient norm": lambda step: step.gradient,
    "mean ratio / cap": lambda step: step.mean,
    "largest ratio / cap": lambda step: step.largest,
    "vectors near the cap": lambda step: step.near,
    "vectors capped": lambda step: step.capped,
}


@dataclass(frozen=True)
class Told:
    """A training run and how it ended. The last step of one that died is the step that crashed."""

    seed: int
    limit: float
    history: tuple[Step, ...]
    died: bool

    def lead(self, alarm: Callable[[Sequence[Step]], bool]) -> int | None:
        """How many steps before its last one the first alarm came; None if there was none.

        `alarm` is shown the history as it stood after each step, the last one included.
        """
        for seen in range(1, len(self.history) + 1):
            if alarm(list(self.history[:seen])):
                return len(self.history) - seen
        return None


@cache
def told(seed: int, limit: float) -> Told:
    """Train with the noise of lesson 01 (4 ulps up in the forward, 4 down in the recomputation), on two blocks.

    That noise is the worst there is: the first step with a capped vector crashes.
    """
    nudge = Nudge({1: +4, 2: -4})

    def checkpointed(trunk, stream):
        nudge.rewind()
        return NON_REENTRANT(nudge.counted(trunk), stream)

    run = DigitRun(noise=nudge, run_trunk=checkpointed, limit=limit, seed=seed, blocks=2, keep=0)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)  # this noise has no use for more, and switching to and fro takes time
        error = run.train(STEPS)
    finally:
        torch.set_num_threads(threads)
    return Told(seed, limit, tuple(run.history), error is not None)


def pairs(seeds: Iterable[int]) -> list[Told]:
    """Each seed's two runs, with the low cap and with the high one."""
    return [told(seed, limit) for seed in seeds for limit in (LOW, HIGH)]


def quiet_threshold(statistic: Callable[[Step], float], runs: Iterable[Told]) -> float:
    """The lowest threshold with no alarm in any run that lived: the largest value that occurs in one."""
    return max(statistic(step) for run in runs if not run.died for step in run.history)


def past(statistic: Callable[[Step], float], threshold: float) -> Callable[[Sequence[Step]], bool]:
    """The alarm that goes off when the latest step's statistic is above the threshold."""
    return lambda history: statistic(history[-1]) > threshold
