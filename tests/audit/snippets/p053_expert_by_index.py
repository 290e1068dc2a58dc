import torch
import torch.nn as nn


class Switch(nn.Module):
    def __init__(self, experts=3, width=3):
        super().__init__()
        self.experts = nn.ModuleList([nn.Linear(width, width), nn.Tanh(), nn.Identity()])

    def forward(self, x):
        which = int(x.mean(0).argmax())
        return self.experts[which](x)


def build():
    torch.manual_seed(0)
    return Switch()


def inputs(flip=False):
    return (torch.tensor([[5.0, 0.0, 0.0]]) if flip else torch.tensor([[0.0, 5.0, 0.0]]),)
