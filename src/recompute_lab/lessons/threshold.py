"""Lesson 02, the threshold regime: the panel, and the specimen behind it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count

from recompute_lab.instruments.checkpointing import NON_REENTRANT
from recompute_lab.instruments.gradients import divergence
from recompute_lab.instruments.margins import Margins, ulps_from
from recompute_lab.instruments.nondeterminism import Atomics, Nudge
from recompute_lab.specimens.on_the_threshold import LIMIT, OnTheThreshold
from recompute_lab.views.threshold import ThresholdPanel

SHARES = 256  # parts that real noise adds up: enough for the order to show
MOST_REAL = 1000  # positions

_seeds = count(1)


def panel() -> ThresholdPanel:
    """The panel of lesson 02: a guard over many positions, all of them on the limit."""
    return ThresholdPanel(measure, steps)


def measure(noise: int, positions: int, source: str) -> Margins:
    """Where the positions stand, over as many passes as take about a second.

    Raises ValueError for more than `MOST_REAL` positions with real noise.
    """
    passes = (20_000, 4, 100) if source == "real" else (200_000, 2, 400)
    passes = min(max(passes[0] // positions, passes[1]), passes[2])
    specimen = _specimen(noise, positions, source, seed=0)
    return _as_threads_are_now(lambda: Margins.measure(specimen.ratios, passes, LIMIT))


def steps(cap: int, noise: int, positions: int, source: str, full_shape: bool) -> Iterator[str]:
    """One checkpointed step after the other, each with noise of its own: the words of `Divergence.outcome`."""
    for seed in _seeds:
        specimen = _specimen(noise, positions, source, seed)
        segment = specimen.segment(ulps_from(LIMIT, cap), full_shape)
        yield _as_threads_are_now(
            lambda: divergence(segment, specimen.vectors, strategy=NON_REENTRANT).outcome  # noqa: B023, at once
        )


def _specimen(noise: int, positions: int, source: str, seed: int) -> OnTheThreshold:
    if source == "real" and positions > MOST_REAL:
        raise ValueError(
            f"Real noise is shown for {MOST_REAL:,} positions at most: it adds up {SHARES} parts of every element, "
            f"and with {positions:,} positions you would wait for each picture. Choose fewer, or staged noise."
        )
    return OnTheThreshold(positions, Atomics(SHARES) if source == "real" else Nudge(noise, seed=seed))


def _as_threads_are_now(function: Callable):
    """Call in a fresh thread: in the one where JupyterLab moves widgets, torch keeps the number of threads it had."""
    with ThreadPoolExecutor(1) as fresh:
        return fresh.submit(function).result()
