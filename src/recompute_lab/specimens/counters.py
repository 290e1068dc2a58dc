"""Segments that count their calls."""

from __future__ import annotations

import torch

from recompute_lab.repairs.recomputation import recomputing
from recompute_lab.specimens.layers import Layers


class Counted(Layers):
    """Writes `calls`, and does not read it: the log is wrong, the gradients are right."""

    def build(self) -> None:
        super().build()
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return self.second(torch.tanh(self.first(x)))


class CountedOnce(Counted):
    """The recomputation does not count."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not recomputing():
            self.calls += 1
        return self.second(torch.tanh(self.first(x)))


class WarmedUp(Layers):
    """Writes `calls`, then reads it: the layer comes in over 100 calls. The recomputation scales by another share."""

    def build(self) -> None:
        super().build()
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        share = min(1.0, self.calls / 100)
        return x + self.second(share * torch.tanh(self.first(x)))


class WarmedUpOnce(WarmedUp):
    """The recomputation reads what the forward wrote; so long as nobody has counted on in between."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not recomputing():
            self.calls += 1
        share = min(1.0, self.calls / 100)
        return x + self.second(share * torch.tanh(self.first(x)))


PLACES = ("at the top", "in the middle", "after the last saved tensor")


class CountedAt(Layers):
    """Counts at one of PLACES. Early stop ends the recomputation at its last saved tensor, which is in `second`.

    Raises ValueError for a place that is none of them.
    """

    def __init__(self, place: str):
        super().__init__()
        if place not in PLACES:
            raise ValueError(f"a place is one of {', '.join(PLACES)}; got {place!r}")
        self.place, self.calls = place, 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += self.place == "at the top"
        x = torch.tanh(self.first(x))
        self.calls += self.place == "in the middle"
        x = self.second(x)
        self.calls += self.place == "after the last saved tensor"
        return x
