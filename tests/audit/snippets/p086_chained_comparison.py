import torch


def logit(p: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    if not 0 <= p.min() <= p.max() <= 1:
        p = p.sigmoid()
    return torch.logit(p, eps)


def build():
    return logit


def inputs(flip=False):
    return (torch.tensor([0.2, 7.0 if flip else 0.7]),)
