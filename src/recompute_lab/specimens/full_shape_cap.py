"""The guarded norm cap with a larger saved tensor: what makes one direction of its flip silent."""

from __future__ import annotations

import torch

from recompute_lab.specimens.norm_cap import NormCap, cap_scale


class FullShapeNormCap(NormCap):
    """The guarded cap with its scales spread to the update's shape first: the same numbers, a larger saved tensor."""

    def forward(self, update: torch.Tensor, stream: torch.Tensor) -> torch.Tensor:
        scale = cap_scale(update, stream, self.limit).unsqueeze(-1).expand(update.shape)
        self.hit = False
        if (scale < 1.0).any():
            update = update * scale.to(update.dtype)
            self.hit = True
        return update
