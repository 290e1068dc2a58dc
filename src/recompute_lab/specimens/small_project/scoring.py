"""How good the predictions are; never inside a checkpoint."""

import torch


def accuracy(logits: torch.Tensor, labels: torch.Tensor) -> float:
    """The share of rows [rows, classes] whose largest logit is at its label [rows]."""
    return (logits.argmax(-1) == labels).float().mean().item()


def recall(logits: torch.Tensor, labels: torch.Tensor, of: int) -> float:
    """Of the rows that are of class `of`, the share that is found; 1.0 where there are none."""
    wanted = labels == of
    if not wanted.any():
        return 1.0
    return (logits.argmax(-1)[wanted] == of).float().mean().item()
