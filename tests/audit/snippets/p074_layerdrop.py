import torch
from torch import nn


class Stack(nn.Module):
    def __init__(self, depth=3, layerdrop=0.5):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(2, 2) for _ in range(depth))
        self.layerdrop = layerdrop

    def forward(self, x):
        for layer in self.layers:
            draw = torch.rand([])
            skip = True if self.training and (draw < self.layerdrop) else False
            if not skip:
                x = layer(x)
        return x


def build():
    torch.manual_seed(0)
    return Stack()


def inputs(flip=False):
    torch.manual_seed(11 if flip else 5)
    return (torch.ones(1, 2),)
