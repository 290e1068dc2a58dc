import torch
import torch.nn as nn


class Objective(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(2, 1)

    def forward(self, x, y):
        loss = (self.head(x) - y).square().mean()
        if not torch.isfinite(loss):
            loss = loss.new_zeros((), requires_grad=True)
        return loss


def build():
    torch.manual_seed(0)
    return Objective()


def inputs(flip=False):
    return torch.ones(1, 2), torch.tensor([[float("nan") if flip else 1.0]])
