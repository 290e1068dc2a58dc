"""Twelve lines that the grep or the audit reports, each with a letter: which of them need a repair?"""

import logging
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint, noop_context_fn

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Options:
    scale: str = "rms"
    careful: bool = True
    drop: tuple[float, ...] = (0.0, 0.0)


def rms(x):
    size = x.square().mean().sqrt()
    return x / size if size > 1.0 else x  # A


def by_range(x):
    return x / x.abs().amax().clamp_min(1.0)


SCALES = {"rms": rms, "range": by_range}


class Layer(nn.Module):
    """[rows, 16] to the same; `kinds` [rows], int64, 0 to 2."""

    def __init__(self, options):
        super().__init__()
        self.options, self.peak = options, 0.0
        self.along = nn.Linear(16, 16)
        if np.array(options.drop).any():  # B
            raise ValueError("this layer drops nothing")

    def forward(self, x, kinds):
        x = SCALES[self.options.scale](x)
        if self.options.careful and torch.isnan(x).any():  # C
            raise ValueError("the input holds NaN")
        result = torch.zeros_like(x)
        for kind in kinds.unique():  # D
            result[kinds == kind] = self.along(x[kinds == kind]).tanh()
        self.remember(result)
        return shrunk(in_half(x + result))

    def remember(self, x):
        level = x.abs().max().item()
        if level > self.peak:  # E
            self.peak = level
        if level > 0.9:  # F
            log.info("near saturation")


def in_half(x):
    if x.dtype == torch.float16 and torch.isinf(x).any():  # G
        x = x.clamp(-65000, 65000)
    return x


def shrunk(x):
    """An earlier version asked `if (x > 2.0).any():` first."""  # H
    long = x.norm(dim=-1, keepdim=True) > 4.5
    if long.any():  # I
        x = torch.where(long, 0.5 * x, x)
    return x


def converged(x):
    for _ in range(5):
        following = 0.5 * (x + x.tanh())
        if (following - x).abs().max() < 0.12:  # J
            return following
        x = following
    return x


class Net(nn.Module):
    def __init__(self, options=None, context_fn=noop_context_fn):
        super().__init__()
        self.layer, self.context_fn = Layer(options or Options()), context_fn

    def forward(self, x, kinds):
        x = checkpoint(self.layer, x, kinds, use_reentrant=False, context_fn=self.context_fn)
        x = checkpoint(converged, x, use_reentrant=False, context_fn=self.context_fn)
        if x.isnan().any():  # K
            raise ValueError("the output holds NaN")
        return x


def share_of_large(x):
    large = x.abs() > 1.0
    return large.float().mean() if large.any() else torch.zeros(())  # L
