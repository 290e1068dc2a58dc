import torch
from torch import Tensor


def label_smooth(logits: Tensor, target: Tensor, alpha: float = 0.1, gamma: float = 0.0) -> Tensor:
    log_p = logits.log_softmax(-1)
    picked = log_p.gather(-1, target.unsqueeze(-1)).squeeze(-1)
    if alpha > 0:
        picked = (1 - alpha) * picked + alpha * log_p.mean(-1)
    if gamma:
        picked = (1 - picked.exp()).pow(gamma) * picked
    assert 0 <= alpha < 1
    return -picked.mean()


def build():
    return label_smooth


def inputs(flip=False):
    return torch.tensor([[1.0, 5.0 if flip else 2.0]]), torch.tensor([1 if flip else 0])
