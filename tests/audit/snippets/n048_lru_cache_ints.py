import functools

import torch


@functools.lru_cache(maxsize=8)
def blocks(length: int, size: int) -> int:
    return length // size + (1 if length % size else 0)


def blockwise(x: torch.Tensor, size: int = 2) -> torch.Tensor:
    n = blocks(x.shape[0], size)
    if n > 1:
        return torch.cat([x[i * size : (i + 1) * size].softmax(0) for i in range(n)])
    return x.softmax(0)


def build():
    return blockwise


def inputs(flip=False):
    return (torch.tensor([1.0, 5.0 if flip else 2.0, 3.0]),)
