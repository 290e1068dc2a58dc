import torch
from torch import nn


class Sparse(nn.Module):
    def __init__(self):
        super().__init__()
        self.experts = nn.ModuleList(nn.Linear(2, 2) for _ in range(4))

    def forward(self, x, route):
        out = torch.zeros_like(x)
        for e in route.unique().tolist():
            out = out + self.experts[e](x) * (route == e).unsqueeze(-1)
        return out


def build():
    torch.manual_seed(0)
    return Sparse()


def inputs(flip=False):
    return torch.ones(3, 2), torch.tensor([0, 3, 1]) if flip else torch.tensor([2, 2, 2])
