"""The odds of a guard: how often it is true, how often two passes disagree, how long a run lives.

A position is one value that a guard looks at; the guard is true if any position is past the threshold. Closed forms for
positions and passes that are independent of each other; `binomial_interval` says whether a measurement agrees.
"""

from __future__ import annotations

import math


def guard_true(p: float, positions: int = 1) -> float:
    """The probability that any of `positions` is past the threshold, each with probability `p`: 1 - (1 - p)^n."""
    _probability(p)
    _count("positions", positions)
    if p == 0 or p == 1:
        return float(p == 1 and positions > 0)
    return -math.expm1(positions * math.log1p(-p))  # exact for a small p, where 1 - (1 - p) ** n is not


def passes_disagree(p: float, positions: int = 1) -> float:
    """The probability that forward and recomputation disagree on the guard: 2 g (1 - g), with g of `guard_true`."""
    g = guard_true(p, positions)
    return 2 * g * (1 - g)


def dies_within(per_step: float, steps: int, segments: int = 1, ranks: int = 1) -> float:
    """The probability that a run dies: any of its steps, in any segment of any rank, with probability `per_step` each.

    Assumes that the probability is the same everywhere and that nothing is shared: neither noise nor data.
    """
    for name, number in (("steps", steps), ("segments", segments), ("ranks", ranks)):
        _count(name, number)
    return guard_true(per_step, float(steps) * float(segments) * float(ranks))  # NumPy's integers would wrap around


def binomial_interval(hits: int, trials: int, confidence: float = 0.95) -> tuple[float, float]:
    """An interval for a probability of which `hits` in `trials` were seen; it covers at least as often as it says.

    Source: C. J. Clopper and E. S. Pearson, "The use of confidence or fiducial limits illustrated in the case of the
    binomial", Biometrika 26, 1934. Raises ValueError where nothing was tried, and where
    `hits` or `confidence` is out of range.
    """
    from scipy.special import betaincinv  # the beta distribution's quantiles, without all of scipy.stats

    if trials < 1:
        raise ValueError("an interval needs at least one trial")
    if not 0 <= hits <= trials:
        raise ValueError(f"{trials} trials have between 0 and {trials} hits; got {hits}")
    if not 0 <= confidence <= 1:
        raise ValueError(f"a confidence lies between 0 and 1; got {confidence}")
    missed = (1 - confidence) / 2
    low = betaincinv(hits, trials - hits + 1, missed) if hits > 0 else 0
    high = betaincinv(hits + 1, trials - hits, 1 - missed) if hits < trials else 1
    return float(low), float(high)


def _count(name: str, number: float) -> None:
    if not number >= 0:
        raise ValueError(f"a number of {name} is not negative; got {number}")


def _probability(p: float) -> None:
    if not 0 <= p <= 1:
        raise ValueError(f"a probability lies between 0 and 1; got {p}")
