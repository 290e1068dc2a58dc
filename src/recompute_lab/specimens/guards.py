"""Three more guards of the kind that crashed the run: apply an operation only if a value asks for it.

Each is `guard(x, ...) -> tensor of x's shape and dtype`, and saves another number of tensors when its condition holds.
"""

from __future__ import annotations

import torch


def clip_when_needed(x: torch.Tensor, bound: float) -> torch.Tensor:
    """Limit every element to [-bound, bound], if any element needs it."""
    if x.abs().max() > bound:
        x = x.clamp(-bound, bound)
    return x


def zero_nans_when_present(x: torch.Tensor) -> torch.Tensor:
    """Replace NaN by zero, if there is any. Infinities stay."""
    if torch.isnan(x).any():
        x = torch.where(torch.isnan(x), 0.0, x)
    return x


def mask_when_any(scores: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
    """Set hidden scores to minus infinity, if any is hidden: two tensors of one shape, the second bool."""
    if hidden.any():
        scores = scores.masked_fill(hidden, float("-inf"))
    return scores
