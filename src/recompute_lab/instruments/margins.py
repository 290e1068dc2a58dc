"""How far a guard's positions are from its threshold, over many passes: when can two passes disagree?

Distances are counted in units in the last place (ulps) of float32: how many representable numbers lie between. A guard
that asks whether any position is past `cap` is then a comparison of integers, and one set of passes answers for every
cap at once.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch

from recompute_lab.instruments.odds import guard_true


def ulps_above(values: torch.Tensor, reference: float) -> torch.Tensor:
    """How many float32 steps each value lies above `reference` (negative: below): float32 -> int64, same shape.

    Raises ValueError for a reference that is not positive, and for values that are negative or not finite: lengths and
    their ratios are neither.
    """
    _positive(reference)
    values = values.detach().float()
    if not bool((values.isfinite() & (values >= 0)).all()):
        raise ValueError("distances are those of finite numbers that are not negative; there is another one")
    return _bits(values.abs()).long() - _bits(torch.tensor(reference, dtype=torch.float32)).long()


def ulps_from(reference: float, ulps: int) -> float:
    """The float32 that lies `ulps` steps above `reference`: the inverse of `ulps_above`.

    Raises ValueError for a reference that is not positive, and where the steps lead below zero or past all finite
    numbers: the bits beyond either end are those of negative numbers and of NaNs.
    """
    _positive(reference)
    bits = int(_bits(torch.tensor(reference, dtype=torch.float32))) + operator.index(ulps)
    if not 0 <= bits <= _LARGEST:
        raise ValueError(f"{ulps} steps from {reference} lead out of the finite float32 from zero up")
    return torch.tensor(bits, dtype=torch.int32).view(torch.float32).item()


_LARGEST = 0x7F7FFFFF  # the bits of the largest finite float32


def _positive(reference: float) -> None:
    if not (reference > 0 and torch.tensor(reference, dtype=torch.float32).isfinite()):
        raise ValueError(f"distances are taken from a positive number; got {reference}")


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().view(torch.int32)


@dataclass(frozen=True)
class Curve:
    """What was measured at one cap.

    `firing` is the share of positions past it, over all passes. The guard was true in `true` of `passes` passes, and
    the two passes of `disagreed` in `pairs` pairs did not agree on it.
    """

    cap: int
    firing: float
    true: int
    passes: int
    disagreed: int
    pairs: int


class Margins:
    """Distances of all positions in many passes: int, [passes, positions], in ulps above `reference`.

    Two passes in a row are one pair, as forward and recomputation are. Raises ValueError for fewer than two passes, or
    no position.
    """

    def __init__(self, distances: torch.Tensor, reference: float = 1.0):
        if distances.dim() != 2 or distances.shape[0] < 2 or distances.shape[1] < 1:
            raise ValueError(f"[passes, positions] with two passes at least; got {list(distances.shape)}")
        # In fewer bytes a cap may have no place, and the comparison would wrap around. On a GPU each look would wait.
        distances = distances.long().cpu()
        self.distances, self.reference = distances, reference
        self.largest = distances.amax(1)
        self._sorted = distances.flatten().sort().values

    @classmethod
    def measure(cls, ratios: Callable[[], torch.Tensor], passes: int, reference: float = 1.0) -> Margins:
        """Call `ratios` once per pass. It returns one non-negative number per position, of any shape."""
        return cls(torch.stack([ulps_above(ratios().flatten(), reference) for _ in range(passes)]), reference)

    @property
    def positions(self) -> int:
        return self.distances.shape[1]

    @property
    def passes(self) -> int:
        return self.distances.shape[0]

    def at(self, cap: int) -> Curve:
        """The measurement at a cap that lies `cap` ulps above the reference."""
        fires = self.largest > cap
        pairs = fires[: self.passes // 2 * 2].view(-1, 2)
        above = len(self._sorted) - int(torch.searchsorted(self._sorted, cap, right=True))
        disagreed = int((pairs[:, 0] != pairs[:, 1]).sum())
        return Curve(cap, above / len(self._sorted), int(fires.sum()), self.passes, disagreed, len(pairs))

    def sweep(self, caps: Iterable[int]) -> list[Curve]:
        return [self.at(cap) for cap in caps]

    def expected_alike(self, cap: int) -> float:
        """The guard's probability for positions that are all alike, from their common share: 1 - (1 - p)^n."""
        return guard_true(self.at(cap).firing, self.positions)
