import torch
import torch.nn as nn


class Crop(nn.Module):
    def forward(self, a, b):
        *_, height, width = a.size()
        other = b.shape[-2:]
        low = min(height, other[0])
        wide = max(width, other[1]) > 3
        if low < height:
            a = a[..., :low, :]
        if wide and a.shape == b.shape:
            return a + b
        return a.sum() + b.sum()


def build():
    return Crop()


def inputs(flip=False):
    return torch.full((1, 4, 4), -1.0 if flip else 1.0), torch.ones(1, 3, 4)
