import torch
from torch import nn


class Recorder(nn.Module):
    def __init__(self):
        super().__init__()
        self.history = []
        self.lin = nn.Linear(2, 2)

    def _note(self, x):
        self.history.append(x.detach().mean())

    def forward(self, x):
        y = self.lin(x)
        self._note(y)
        return y


def build():
    torch.manual_seed(0)
    return Recorder()


def inputs(flip=False):
    return (torch.full((1, 2), -1.0 if flip else 1.0),)
