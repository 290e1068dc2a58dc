import torch
from torch import nn


class Spike(nn.Module):
    def __init__(self):
        super().__init__()
        self.last = None
        self.lin = nn.Linear(2, 1)

    def forward(self, x):
        loss = self.lin(x).pow(2).mean()
        now = loss.detach().item()
        if self.last is not None and now > 2 * self.last:
            loss = loss * 0.1
        self.last = now
        return loss


def build():
    torch.manual_seed(0)
    spike = Spike()
    spike.last = 0.5
    return spike


def inputs(flip=False):
    return (torch.full((2, 2), 50.0 if flip else 0.0),)
