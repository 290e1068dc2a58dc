import torch
from torch import nn


class Heads(nn.Module):
    def __init__(self):
        super().__init__()
        self.heads = nn.ModuleList(nn.Linear(2, 1) for _ in range(3))
        self.bias = nn.Parameter(torch.ones(1))

    def forward(self, x, gates):
        parts = [head(x) for head, gate in zip(self.heads, gates, strict=True) if gate > 0]
        return torch.cat([self.bias.expand(x.shape[0], 1), *parts], -1)


def build():
    torch.manual_seed(0)
    return Heads()


def inputs(flip=False):
    return torch.ones(1, 2), torch.tensor([1.0, -1.0 if flip else 1.0, -1.0])
