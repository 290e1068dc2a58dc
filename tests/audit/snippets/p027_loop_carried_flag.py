import torch
import torch.nn as nn


class Halting(nn.Module):
    """Adaptive computation time, in short."""

    def __init__(self, most=6):
        super().__init__()
        self.rate = nn.Parameter(torch.tensor(0.1))
        self.most = most

    def forward(self, x):
        state = torch.zeros_like(x)
        done, ticks = False, 0
        while not done and ticks < self.most:
            state = (self.rate * x + state).tanh()
            done = (state.mean() > 0.2).item()
            ticks += 1
        return state


def build():
    torch.manual_seed(3)
    return Halting()


def inputs(flip=False):
    return (torch.full((1, 3), 4.0 if flip else -4.0),)
