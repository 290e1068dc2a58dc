import torch


def windows(x: torch.Tensor, size: int, hop: int):
    start = 0
    while start + size <= x.shape[0]:
        yield start, x[start : start + size]
        start += hop
    if start < x.shape[0]:
        yield start, x[start:]


def overlap(x):
    total = torch.zeros(())
    for start, part in windows(x, 2, 2):
        if start > 0:
            total = total + part.sum()
    return total


def build():
    return overlap


def inputs(flip=False):
    return (torch.tensor([1.0, 5.0 if flip else 2.0, 3.0]),)
