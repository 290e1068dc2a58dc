import torch
from torch import nn


class Clampish(nn.Module):
    def forward(self, x):
        top = torch.finfo(x.dtype).max
        low = torch.finfo(x.dtype).min / 2
        if top > 1e10 and low < 0:
            low = -1e10
        if torch.is_autocast_enabled("cpu"):
            x = x.float()
        if torch.is_grad_enabled() or torch.get_default_dtype() == torch.float64:
            x = x + 0
        return x.clamp(min=low)


def build():
    return Clampish()


def inputs(flip=False):
    return (torch.full((4,), -1.0 if flip else 1.0),)
