import torch


def activate(kind, x):
    match kind:
        case "auto" if x.min() >= 0:
            return x.sqrt()
        case "auto":
            return x.abs().sqrt()
        case "none":
            return x
        case _:
            raise ValueError(kind)


def build():
    return activate


def inputs(flip=False):
    return "auto", torch.tensor([1.0, -1.0 if flip else 1.0])
