import torch


def reduce(x, how="mean"):
    match (how, x.dim()):
        case ("mean", 1):
            return x.mean()
        case ("mean", n) if n > 1:
            return x.mean(0)
        case ("max", _):
            return x.amax()
        case _:
            raise ValueError(how)


def build():
    return reduce


def inputs(flip=False):
    return (torch.tensor([1.0, 5.0 if flip else 2.0]),)
