"""The norm cap: no vector of an update may be longer than `limit` times the vector it is added to.

The crash of this course comes from the guard in `GuardedNormCap`: whether a multiplication enters the graph is decided
by the value of a tensor. The other classes compute the same numbers without that decision.
"""

from __future__ import annotations

import torch
from torch import nn


def cap_scale(update: torch.Tensor, stream: torch.Tensor, limit: float) -> torch.Tensor:
    """A factor in [0, 1], or NaN, for each vector: [..., D], [..., D] -> [...], float32."""
    with torch.no_grad():
        ratio = update.float().norm(dim=-1) / (stream.float().norm(dim=-1) + 1e-8)
        return (limit / ratio).clamp(max=1.0)


class NormCap(nn.Module):
    """What the caps share. `hit` is telemetry: a plain bool, written by every pass, so the last pass wins."""

    def __init__(self, limit: float):
        super().__init__()
        if not limit > 0:
            raise ValueError(f"a norm cap's limit must be positive, got {limit}")
        self.limit = limit
        self.hit = False


class GuardedNormCap(NormCap):
    """As it stood in the run that died: multiply only if any vector is too long."""

    def forward(self, update: torch.Tensor, stream: torch.Tensor) -> torch.Tensor:
        scale = cap_scale(update, stream, self.limit)
        self.hit = False
        if (scale < 1.0).any():
            update = update * scale.unsqueeze(-1).to(update.dtype)
            self.hit = True
        return update


def ratios(update: torch.Tensor, stream: torch.Tensor) -> torch.Tensor:
    """How long each vector is, in lengths of the one it is added to: [..., D], [..., D] -> [...], float32."""
    with torch.no_grad():
        return update.float().norm(dim=-1) / (stream.float().norm(dim=-1) + 1e-8)


class RepairedNormCap(NormCap):
    """Always multiply; by 1.0 where the cap does not bite. Equal bit for bit wherever the vectors' norms are finite.

    That is, for vectors with a norm short of 1.8e19, where the sum of squares leaves float32 and a scale may be NaN.
    The flag may still read a tensor: nothing downstream of it is a tensor, so it cannot change the program's shape.
    A vector with a NaN becomes NaN as a whole; see `NaNKeepingNormCap`.
    """

    def forward(self, update: torch.Tensor, stream: torch.Tensor) -> torch.Tensor:
        scale = cap_scale(update, stream, self.limit)
        with torch.no_grad():
            self.hit = (scale < 1.0).any().item()
        return update * scale.unsqueeze(-1).to(update.dtype)


class NaNKeepingNormCap(NormCap):
    """The repair that changes nothing at all: the guard's own decision, kept as a tensor.

    `torch.where` picks the scale if any vector is too long, and 1.0 for all if none is: every output bit is the guarded
    cap's, NaN and infinity included (of a bfloat16 NaN only that it is one: multiplying writes torch's own), and the
    number of saved tensors is the same in every pass.
    """

    def forward(self, update: torch.Tensor, stream: torch.Tensor) -> torch.Tensor:
        scale = cap_scale(update, stream, self.limit)
        with torch.no_grad():
            fires = (scale < 1.0).any()
            scale = torch.where(fires, scale, 1.0)
            self.hit = fires.item()
        return update * scale.unsqueeze(-1).to(update.dtype)


class CountingCap(RepairedNormCap):
    """The repaired cap with a counter inside, to show what becomes of it: every pass raises `calls`."""

    def __init__(self, limit: float):
        super().__init__(limit)
        self.calls = 0

    def forward(self, update: torch.Tensor, stream: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return super().forward(update, stream)
