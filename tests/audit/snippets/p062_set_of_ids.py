import torch


def pooled(x, segment):
    groups = set(segment.tolist())
    if len(groups) == 1:
        return x.mean(0, keepdim=True)
    return torch.stack([x[segment == g].mean(0) for g in sorted(groups)])


def build():
    return pooled


def inputs(flip=False):
    return torch.ones(3, 2), torch.tensor([0, 1, 2]) if flip else torch.tensor([0, 0, 0])
