import torch
from torch import nn


class Ratchet(nn.Module):
    def forward(self, x, peaks=[]):  # noqa: B006
        peaks.append(x.max().item())
        if peaks[-1] > 1:
            x = x.relu() + 1
        return x


def build():
    return Ratchet()


def inputs(flip=False):
    return (torch.tensor([0.0, 2.0 if flip else 0.5]),)
