"""Means with their errors: what repeated draws say, and whether they agree with a formula."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist, mean, stdev

import torch


@dataclass(frozen=True)
class Estimate:
    """The mean of `draws` vectors, [d], each component's standard error, [d], and the trace of their covariance."""

    mean: torch.Tensor
    error: torch.Tensor
    variance: float
    draws: int

    @classmethod
    def of(cls, samples: torch.Tensor) -> Estimate:
        """From independent draws, [draws, d]. Raises ValueError for fewer than two, which have no spread."""
        if samples.dim() != 2 or len(samples) < 2:
            raise ValueError(f"an estimate needs at least two draws, [draws, d]; got {list(samples.shape)}")
        variances = samples.double().var(0)
        draws = len(samples)
        return cls(samples.double().mean(0), (variances / draws).sqrt(), float(variances.sum()), draws)

    def errors_from(self, value: torch.Tensor) -> torch.Tensor:
        """How many standard errors each component is from `value`, [d], with its sign."""
        return (self.mean - value) / self.error


def allowed_errors(comparisons: int, wrong_alarm: float = 0.01) -> float:
    """How many standard errors the largest of `comparisons` right estimates exceeds with probability `wrong_alarm`.

    Three standard errors are for one comparison: of twenty right ones, one is beyond three in every nineteenth family.
    Source: Bonferroni's inequality, with normal errors; exact enough for thousands of draws.
    """
    return NormalDist().inv_cdf(1 - wrong_alarm / (2 * comparisons))


@dataclass(frozen=True)
class Interval:
    """A mean and the ends of its confidence interval."""

    mean: float
    low: float
    high: float

    @property
    def excludes_zero(self) -> bool:
        return self.low > 0 or self.high < 0

    def __str__(self) -> str:
        return f"{self.mean:+.3f} [{self.low:+.3f}, {self.high:+.3f}]"


def paired_difference(first: Sequence[float], second: Sequence[float], confidence: float = 0.95) -> Interval:
    """The mean of first - second, pair by pair, and Student's t interval.

    The pairs share what has nothing to do with the question (a seed: data, weights, order), which then cancels. Raises
    ValueError for fewer than two pairs, and where the lengths differ.
    """
    from scipy.special import stdtrit  # Student's t quantiles, without all of scipy.stats

    differences = [a - b for a, b in zip(first, second, strict=True)]
    if len(differences) < 2:
        raise ValueError("an interval needs at least two pairs")
    half = float(stdtrit(len(differences) - 1, (1 + confidence) / 2)) * stdev(differences) / math.sqrt(len(differences))
    middle = mean(differences)
    return Interval(middle, middle - half, middle + half)
