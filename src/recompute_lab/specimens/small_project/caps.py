"""Caps on a block's update, chosen by name in the configuration."""

import torch
from torch import nn


def cap_scale(update, stream, limit: float) -> torch.Tensor:
    """What each vector is to be multiplied by, at most 1: [rows, places] for [rows, places, width]."""
    with torch.no_grad():
        longest = limit * stream.norm(dim=-1)
        return (longest / update.norm(dim=-1).clamp_min(1e-12)).clamp(max=1.0)


class NormCap(nn.Module):
    """No update is longer than `limit` times the vector that it is added to."""

    def __init__(self, config):
        super().__init__()
        self.limit, self.calls = config.limit, 0

    def forward(self, update, stream):
        self.calls += 1
        scale = cap_scale(update, stream, self.limit)
        over = scale < 1.0
        # Was: if over.any(): update = update / 2
        if over.any():
            update = update * scale.unsqueeze(-1)
        return update


class NoCap(nn.Module):
    def __init__(self, config):
        super().__init__()

    def forward(self, update, stream):
        return update


CAPS = {"norm": NormCap, "none": NoCap}
