import torch
import torch.nn as nn


class Tracker(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("best", torch.tensor(0.0))

    def forward(self, x):
        peak = x.detach().max()
        if peak > self.best:
            self.best.copy_(peak)
        return x * 2


def build():
    return Tracker()


def inputs(flip=False):
    return (torch.tensor([-3.0 if flip else 3.0]),)
