import logging

import torch
from torch import nn

log = logging.getLogger(__name__)


class Clamped(nn.Module):
    def forward(self, x):
        share = (x.abs() > 10).float().mean()
        if share > 0.1:
            log.warning("%.1f%% of the values were clamped", 100 * share)
        return x.clamp(-10, 10)


def build():
    return Clamped()


def inputs(flip=False):
    return (torch.full((4,), 99.0 if flip else 1.0),)
