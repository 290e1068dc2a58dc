import torch


def pad_even(x: torch.Tensor) -> torch.Tensor:
    if x.dim() == 1:
        x = x.unsqueeze(0)
    while x.size(-1) % 4:
        x = torch.nn.functional.pad(x, (0, 1))
    rows, cols = x.shape
    if rows * cols != x.numel() or x.ndim != 2 or len(x) == 0:
        raise ValueError("not a matrix")
    return x


def build():
    return pad_even


def inputs(flip=False):
    return (torch.full((5,), -1.0 if flip else 1.0),)
