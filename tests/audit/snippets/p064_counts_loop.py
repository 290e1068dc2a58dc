import torch


def drain(counts: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    queue = counts.tolist()
    while queue:
        need = queue.pop()
        if not need:
            continue
        x = x + need * x.cos()
    return x


def build():
    return drain


def inputs(flip=False):
    return torch.tensor([1, 0 if flip else 2, 3]), torch.ones(2)
