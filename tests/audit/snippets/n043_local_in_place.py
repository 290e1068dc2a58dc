import torch
from torch import nn


class Rotary(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        out[..., ::2] = -x[..., 1::2]
        out[..., 1::2] = x[..., ::2]
        out.mul_(0.5).add_(x)
        notes = {}
        notes["width"] = x.shape[-1]
        parts = []
        parts.append(out)
        return parts[0] + notes["width"]


def build():
    return Rotary()


def inputs(flip=False):
    return (torch.full((1, 4), -1.0 if flip else 1.0),)
