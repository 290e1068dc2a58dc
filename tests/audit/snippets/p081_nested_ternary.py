import torch


def edge(x, mode=None):
    pad = 0.0 if mode == "zero" else (1.0 if x[0] > x[-1] else -1.0)
    return torch.nn.functional.pad(x, (1, 1), value=pad)


def build():
    return edge


def inputs(flip=False):
    return (torch.tensor([3.0, 1.0]) if flip else torch.tensor([1.0, 3.0]),)
