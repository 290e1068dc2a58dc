import math

import torch


class SafeLog(torch.nn.Module):
    def forward(self, p):
        out = p.log().sum()
        if math.isfinite(out):
            return out
        return (p + 1e-6).log().sum()


def build():
    return SafeLog()


def inputs(flip=False):
    return (torch.tensor([0.5, 0.0 if flip else 0.5]),)
