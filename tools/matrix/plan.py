"""Which runs make up the matrix: torch, threads, CPU kernels and Python, and what is run under each combination.

What a cell prints could depend on any three of the four settings at once: torch's arithmetic is chosen by the kernels
and split among the threads, and each torch has its own. So the notebooks run under every combination of torch, threads
and kernels, and the Pythons take turns in such a way that *any three* settings meet in every combination: an orthogonal
array of strength 3 (27 runs of the 81). What the learner's notebook adds to the solved one, and the unit tests, run
under 9 of these, in which any two settings meet (strength 2). `everything` is all 81 combinations of all parts.

The arrays: A. S. Hedayat, N. J. A. Sloane, J. Stufken, Orthogonal Arrays, Springer 1999, chapter 3 (linear arrays).
They need three values on each axis; with other numbers the rule is the same, and what is then covered is what the
table shows.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

TORCHES = ("2.6.0", "2.13.0", "2.14.1")
THREADS = (1, 2, 4)
KERNELS = ("default", "avx2", "avx512")  # as ATEN_CPU_CAPABILITY has them, each containing the one before
PYTHONS = ("3.11", "3.12", "3.13")
PARTS = ("solved", "learner", "unit")


@dataclass(frozen=True, order=True)
class Environment:
    """One interpreter with one torch: what takes an installation."""

    python: str
    torch: str

    def __str__(self) -> str:
        return f"py{self.python}-torch{self.torch}"


@dataclass(frozen=True)
class Run:
    """One part of the checks under one combination of settings."""

    environment: Environment
    threads: int
    kernels: str
    part: str

    def __str__(self) -> str:
        threads = f"{self.threads} thread{'s' * (self.threads > 1)}"
        return (
            f"Python {self.environment.python}, torch {self.environment.torch}, {threads}, {self.kernels}, {self.part}"
        )


def everything(pythons, torches=TORCHES, threads=THREADS, kernels=KERNELS, parts=PARTS) -> list[Run]:
    """Every combination, sorted so that one environment's runs stand together."""
    combinations = product(pythons, torches, parts, threads, kernels)
    return [Run(Environment(python, torch), count, kernel, part) for python, torch, part, count, kernel in combinations]


def covering(pythons, torches=TORCHES, threads=THREADS, kernels=KERNELS, parts=PARTS) -> list[Run]:
    """The runs of the orthogonal arrays: strength 3 for the solved notebooks, strength 2 for the other parts.

    Every axis is given whole: a selection is made among the runs, so that it does not change which runs there are.
    """
    chosen = []
    for run in everything(pythons, torches, threads, kernels, parts):
        p, t = pythons.index(run.environment.python), torches.index(run.environment.torch)
        n, k = threads.index(run.threads), kernels.index(run.kernels)
        strength_3 = p == (t + n + k) % len(pythons)
        strength_2 = n == (p + t) % len(threads) and k == (p + 2 * t) % len(kernels)
        if strength_3 if run.part == "solved" else strength_2:
            chosen.append(run)
    return chosen
