import numpy as np
import torch
from torch import nn


class Peaks(nn.Module):
    def forward(self, wave):
        trace = wave.detach().cpu().numpy()
        crossings = np.flatnonzero(np.diff(np.sign(trace)))
        if len(crossings) > 2:
            wave = wave.cumsum(0)
        return wave


def build():
    return Peaks()


def inputs(flip=False):
    return (torch.tensor([1.0, -1.0, 1.0, -1.0]) if flip else torch.ones(4),)
