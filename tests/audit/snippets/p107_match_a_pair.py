import torch


def pool(x, mask, mode="mean"):
    match (mode, bool(mask.any())):
        case ("mean", True):
            return (x * mask).sum() / mask.sum()
        case ("max", True):
            return x.masked_fill(~mask, float("-inf")).max()
        case (_, False):
            return x.new_zeros(())
        case _:
            raise ValueError(mode)


def build():
    return pool


def inputs(flip=False):
    return torch.arange(4.0), torch.full((4,), not flip)
