import torch
from torch import nn


class Mixer(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(2, 2)

    @staticmethod
    def saturated(t):
        return (t.abs() > 0.99).float().mean().item() > 0.5

    def forward(self, x):
        y = self.lin(x).tanh()
        return y if Mixer.saturated(y) else y + x


def build():
    torch.manual_seed(0)
    return Mixer()


def inputs(flip=False):
    return (torch.full((2, 2), 90.0 if flip else 0.1),)
