import torch


def statistics(x):
    flat = x.flatten()
    return {"size": flat.numel(), "overflow": (flat.abs() > 1e4).any(), "mean": flat.mean()}


def rescale(x):
    stats = statistics(x)
    if stats["size"] < 2:
        return x
    if stats["overflow"]:
        x = x / x.abs().max()
    return x - stats["mean"]


def build():
    return rescale


def inputs(flip=False):
    return (torch.tensor([1.0, 2e4 if flip else 2.0]),)
