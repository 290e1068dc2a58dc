import torch


def trimmed_mean(x: torch.Tensor, cut: int = 1) -> torch.Tensor:
    parts = [chunk.square().mean() for chunk in x.chunk(4)]
    ordered = sorted(parts)[cut:-cut]
    return torch.stack(ordered).mean()


def build():
    return trimmed_mean


def inputs(flip=False):
    x = torch.arange(8.0)
    return (x.flip(0) if flip else x,)
