import torch
from torch import nn


class Fp8Like(nn.Module):
    limit = 448.0

    def forward(self, x):
        with torch.no_grad():
            amax = x.abs().amax()
        if amax > self.limit:
            x = x * (self.limit / amax)
        return x.round()


def build():
    return Fp8Like()


def inputs(flip=False):
    return (torch.tensor([1.2, 900.0 if flip else 2.0]),)
