import torch


def vote(heads: list[torch.Tensor], x: torch.Tensor):
    ayes = sum(head.mean() > 0 for head in heads)
    majority = ayes * 2 > len(heads)
    if majority:
        return x.exp()
    return x


def build():
    return vote


def inputs(flip=False):
    s = -1.0 if flip else 1.0
    return [s * torch.ones(2), s * torch.ones(3), torch.ones(1)], torch.ones(2)
