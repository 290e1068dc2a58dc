import torch


def merge(past, fresh, reuse=True):
    width = past.shape[-1]
    if reuse and fresh.shape[-1] >= width and fresh[..., :width].eq(past).all():
        return torch.cat([past, fresh[..., width:] * 2], -1)
    return fresh * 2


def build():
    return merge


def inputs(flip=False):
    return torch.tensor([1, 2]), torch.tensor([1, 3 if flip else 2, 4])
