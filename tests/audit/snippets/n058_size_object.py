import torch


def compatible(a: torch.Size, b: torch.Size) -> bool:
    return all(m == n or m == 1 or n == 1 for m, n in zip(reversed(a), reversed(b), strict=False))


def add(x, y):
    if not compatible(x.shape, y.shape):
        raise ValueError("shapes do not broadcast")
    if x.stride()[-1] != 1 or x.storage_offset() > 0:
        x = x.contiguous()
    target = torch.broadcast_shapes(x.shape, y.shape)
    if target.numel() > 1_000_000 or max(target) > 10_000:
        raise MemoryError
    return x + y


def build():
    return add


def inputs(flip=False):
    return torch.full((2, 3), -1.0 if flip else 1.0), torch.ones(3)
