import torch


def safe_divide(a, b, eps=1e-6):
    zero = b.abs() < eps
    any_zero = zero.any()
    b = torch.where(zero, torch.full_like(b, eps), b)
    out = a / b
    return torch.where(any_zero, out.clamp(-1e3, 1e3), out)


def build():
    return safe_divide


def inputs(flip=False):
    return torch.ones(2), torch.tensor([1.0, 0.0 if flip else 1.0])
