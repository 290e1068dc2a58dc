import torch
from torch import nn


class Spectral(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.eye(3))

    @property
    def needs_clip(self):
        return torch.linalg.matrix_norm(self.weight, 2) > 1.5

    def forward(self, x, gain):
        with torch.no_grad():
            self.weight.copy_(torch.eye(3) * gain)
        weight = self.weight
        if self.needs_clip:
            weight = weight / torch.linalg.matrix_norm(weight, 2)
        return x @ weight


def build():
    return Spectral()


def inputs(flip=False):
    return torch.ones(1, 3), torch.tensor(4.0 if flip else 1.0)
