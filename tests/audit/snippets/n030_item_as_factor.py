import torch


def scaled(x, table):
    scale = x.abs().max().item()
    shift = x.min().tolist()
    fresh = torch.full((3,), scale)
    return fresh * shift + torch.add(table, x[:3], alpha=float(scale))


def build():
    return scaled


def inputs(flip=False):
    return torch.tensor([1.0, 5.0 if flip else 2.0, 3.0]), torch.ones(3)
