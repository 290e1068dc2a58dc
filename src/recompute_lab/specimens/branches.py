"""Five ways in which a forward lets a value decide what it does next, at the end of one small segment.

Every branch asks the same question (is any vector of the update longer than `limit` times its stream?) and does
something else with the answer. Each is `branch(update, stream)`, [N, width], [N, width] -> [N, width], and ends in a
tanh: behind the branch there is one more saved tensor, of the shape that everything else here has.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from recompute_lab.specimens.full_shape_cap import FullShapeNormCap
from recompute_lab.specimens.norm_cap import GuardedNormCap, RepairedNormCap, ratios
from recompute_lab.specimens.trunk import exact


class VectorScale(GuardedNormCap):
    """The norm cap: multiply by one scale per vector, if any is too long."""

    def __init__(self, limit: float, width: int):
        super().__init__(limit)

    def forward(self, update: torch.Tensor, stream: torch.Tensor) -> torch.Tensor:
        return torch.tanh(super().forward(update, stream))


class FullScale(FullShapeNormCap):
    """The same cap with its scales spread to the update's shape before they are multiplied."""

    def __init__(self, limit: float, width: int):
        super().__init__(limit)

    def forward(self, update: torch.Tensor, stream: torch.Tensor) -> torch.Tensor:
        return torch.tanh(super().forward(update, stream))


class RepairedScale(RepairedNormCap):
    """`VectorScale`, repaired: the guard decides a flag, and no longer a tensor."""

    def __init__(self, limit: float, width: int):
        super().__init__(limit)

    def forward(self, update: torch.Tensor, stream: torch.Tensor) -> torch.Tensor:
        return torch.tanh(super().forward(update, stream))


class Branch(nn.Module):
    """What the other three share."""

    def __init__(self, limit: float):
        super().__init__()
        self.limit = limit

    def too_long(self, update: torch.Tensor, stream: torch.Tensor) -> bool:
        return bool((ratios(update, stream) > self.limit).any())


class Gate(Branch):
    """Multiply by a learned gate, if any vector is too long."""

    def __init__(self, limit: float, width: int):
        super().__init__(limit)
        self.gate = nn.Linear(width, width)

    def forward(self, update: torch.Tensor, stream: torch.Tensor) -> torch.Tensor:
        if self.too_long(update, stream):
            update = update * torch.sigmoid(self.gate(update))
        return torch.tanh(update)


class Route(Branch):
    """One of two experts, by whether any vector is too long."""

    def __init__(self, limit: float, width: int):
        super().__init__(limit)
        self.long, self.short = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, update: torch.Tensor, stream: torch.Tensor) -> torch.Tensor:
        expert = self.long if self.too_long(update, stream) else self.short
        return torch.tanh(expert(update))


class EarlyExit(Branch):
    """Leave before the last layer, if any vector is too long."""

    def __init__(self, limit: float, width: int):
        super().__init__(limit)
        self.last = nn.Linear(width, width)

    def forward(self, update: torch.Tensor, stream: torch.Tensor) -> torch.Tensor:
        leave = self.too_long(update, stream)
        update = torch.tanh(update)
        if leave:
            return update
        return torch.tanh(self.last(update))


BRANCHES: dict[str, type[nn.Module]] = {
    "scale per vector": VectorScale,
    "scale of full shape": FullScale,
    "gate": Gate,
    "route": Route,
    "early exit": EarlyExit,
}


class BranchingSegment(nn.Module):
    """Some residual layers, and a branch at the end: [N, width] -> [N, width]. This is what is checkpointed.

    `noise` moves the last bits of what the branch looks at.
    """

    def __init__(
        self,
        branch: type[nn.Module],
        noise: Callable = exact,
        *,
        limit: float = 1.0,
        width: int = 16,
        layers: int = 3,
        seed: int = 0,
    ):
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))
            self.update = nn.Linear(width, width)
            self.branch = branch(limit, width)
        self.noise = noise

    def stand_on_threshold(self, x: torch.Tensor) -> None:
        """Set the branch's limit to the largest ratio that `x` leads to: then the last bits decide."""
        with torch.no_grad():
            self.branch.limit = ratios(*self.vectors(x)).max().item()

    def vectors(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The update and the stream that the branch is about to look at, without noise."""
        for layer in self.layers:
            x = x + torch.tanh(layer(x))
        return self.update(x), x

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        update, stream = self.vectors(x)
        return self.branch(self.noise(update), stream)
