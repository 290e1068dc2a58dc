import torch


@torch.no_grad()
def fixed_point(x, weight, tolerance=1e-3, most=50):
    rounds = 0
    y = x
    while (gap := (torch.tanh(weight * y) - y).abs().max().item()) > tolerance:
        y = torch.tanh(weight * y)
        rounds += 1
        if rounds == most:
            break
    return y, gap


def build():
    return fixed_point


def inputs(flip=False):
    return torch.full((2,), 0.0 if flip else 0.5), 0.5
