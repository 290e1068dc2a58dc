import torch


def first_finite(*candidates: torch.Tensor) -> torch.Tensor:
    for candidate in candidates:
        if candidate.isfinite().all():
            return candidate
    return torch.zeros_like(candidates[0])


def build():
    return lambda x: first_finite(x.log(), x.sqrt(), x.abs()) * 2


def inputs(flip=False):
    return (torch.tensor([1.0, 0.0 if flip else 2.0]),)
