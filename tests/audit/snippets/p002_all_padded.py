import torch


def pool(tokens: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
    """Mean over the kept places; (batch, time, width) and (batch, time)."""
    if torch.all(keep):
        return tokens.mean(1)
    weights = keep.to(tokens.dtype).unsqueeze(-1)
    return (tokens * weights).sum(1) / weights.sum(1).clamp(min=1)


def build():
    return pool


def inputs(flip=False):
    keep = torch.ones(2, 3, dtype=torch.bool)
    if flip:
        keep[1, 2] = False
    return torch.arange(12.0).reshape(2, 3, 2), keep
