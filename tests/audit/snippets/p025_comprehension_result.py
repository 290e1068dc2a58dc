import torch


def combine(candidates, scores):
    alive = [c for c, s in zip(candidates, scores.tolist(), strict=True) if s > 0.5]
    if not alive:
        return torch.zeros_like(candidates[0])
    return torch.stack(alive).mean(0)


def build():
    return combine


def inputs(flip=False):
    return [torch.ones(2), torch.ones(2) * 2], torch.tensor([0.1, 0.2]) if flip else torch.tensor([0.9, 0.1])
