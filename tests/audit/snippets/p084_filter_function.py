import torch


def live_chunks(x):
    live = list(filter(lambda c: c.abs().sum() > 0, x.split(2)))
    return torch.cat(live).sinh()


def build():
    return live_chunks


def inputs(flip=False):
    return (torch.tensor([1.0, 1.0, 0.0, 0.0 if flip else 2.0]),)
