"""Where a random gradient points: on average, and in a single draw, against the one it should be.

Everything is computed from draws, [draws, d], yet speaks of expectations: what an average of so many draws has left of
its noise is taken out. Row i of two sets of draws may share randomness (the forward's mask, say); other rows may not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch


def mean_inner(a: torch.Tensor, b: torch.Tensor) -> float:
    """The inner product of the expectations of two random vectors, from draws of the pair, [draws, d] each; float64.

    Sums over all pairs of *different* draws, so it is unbiased: the inner product of two averages is not, since the
    noise they share (all of it, where b is a) does not average out of it. It may be negative where a is b and the
    expectation is small. A U-statistic; source: W. Hoeffding, Annals of Mathematical Statistics 19, 1948.
    """
    a, b, draws = a.double(), b.double(), len(a)
    return float(a.sum(0) @ b.sum(0) - (a * b).sum()) / (draws * (draws - 1))


def mean_cosine(a: torch.Tensor, b: torch.Tensor) -> float:
    """The cosine between the expectations of two random vectors, as if there were no end of draws: see `mean_inner`.

    NaN where a mean cannot be told from zero.
    """
    lengths = mean_inner(a, a) * mean_inner(b, b)
    return mean_inner(a, b) / math.sqrt(lengths) if lengths > 0 and mean_inner(a, a) > 0 else math.nan


@dataclass(frozen=True)
class Direction:
    """Random gradients g against a reference b. Lengths are Euclidean, and in units of |E b|.

    `single` is the mean cosine between one draw of g and E b, `mean` the cosine between E g and E b. `bias` is the
    length |E g - E b|, `spread` the root of the trace of g's covariance. NaN where a length cannot be told from zero.
    """

    single: float
    mean: float
    bias: float
    spread: float

    @classmethod
    def of(cls, g: torch.Tensor, b: torch.Tensor) -> Direction:
        """From draws of both, [draws, d]."""
        g, b = g.double(), b.double()
        length = _length(b)
        others = (b.sum(0) - b) / (len(b) - 1)  # for each row the mean of the others, which share nothing with it
        single = ((g * others).sum(1) / g.norm(dim=1)).mean() / length
        bias = 0.0 if torch.equal(g, b) else _length(g - b) / length
        return cls(float(single), mean_cosine(g, b), bias, math.sqrt(float(g.var(0).sum())) / length)


def _length(a: torch.Tensor) -> float:
    """The length of the expectation."""
    squared = mean_inner(a, a)
    return math.sqrt(squared) if squared > 0 else math.nan
