import torch
from torch import nn


class Checked(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Identity()

    def forward(self, x):
        assert x.ndim == 2, f"two dimensions are needed, got {x.ndim}"
        h = self.lin(x)
        bad = int(torch.isnan(h).sum())
        assert bad == 0, f"{bad} NaNs"
        return h.relu()


def build():
    return Checked()


def inputs(flip=False):
    return (torch.full((2, 2), float("nan") if flip else 1.0),)
