import torch
from torch import nn


class Codebook(nn.Module):
    def __init__(self, codes=4, width=2):
        super().__init__()
        self.register_buffer("codes", torch.arange(codes * width, dtype=torch.float32).view(codes, width))

    def assign(self, x):
        return torch.cdist(x, self.codes).argmin(-1)

    def forward(self, x):
        index = self.assign(x)
        usage = torch.bincount(index, minlength=len(self.codes))
        dead = usage == 0
        dead_count = dead.sum()
        share = dead_count / len(self.codes)
        quantised = self.codes[index]
        if share > 0.5:
            quantised = quantised + (x - quantised).mean(0)
        return x + (quantised - x).detach()


def build():
    return Codebook()


def inputs(flip=False):
    return (torch.zeros(4, 2) if flip else torch.arange(8.0).view(4, 2),)
