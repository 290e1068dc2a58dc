import torch
from torch import nn


class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)])

    def forward(self, x, route):
        out = torch.zeros_like(x)
        for number, layer in enumerate(self.layers):
            (rows,) = torch.where(route == number)
            if rows.numel():
                out = out.index_add(0, rows, layer(x[rows]))
        return out


def build():
    torch.manual_seed(0)
    return Experts()


def inputs(flip=False):
    return torch.ones(3, 2), torch.tensor([0, 0, 1 if flip else 0])
