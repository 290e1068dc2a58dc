"""Every place of a row takes in something of the others."""

import torch
from torch import nn

from .health import rounds


class Mixer(nn.Module):
    """[rows, places, width] to the same; `padding` [rows, places] is True where there is no token."""

    def __init__(self, config):
        super().__init__()
        self.across = nn.Linear(config.places, config.places)
        self.along = nn.Linear(config.width, config.width)
        self.refine = nn.Linear(config.width, config.width)

    def forward(self, x, padding):
        mixed = self.spread(x, padding, padded=padding.any())
        mixed = self.along(standardised(mixed))
        for _ in range(rounds(mixed.abs().amax())):
            mixed = mixed + 0.1 * torch.tanh(self.refine(mixed))
        return mixed + summary(mixed, parts=3).unsqueeze(1)

    def spread(self, x, padding, padded=False):
        if padded:
            x = x.masked_fill(padding.unsqueeze(-1), 0.0)
        return self.across(x.transpose(1, 2)).transpose(1, 2)


def standardised(x):
    """x in units of its standard deviation; as it is where all of it is equal."""
    deviation = x.std()
    return x / deviation if deviation > 0 else x


def summary(x: torch.Tensor, parts: int) -> torch.Tensor:
    """The mean over those parts of a row in which there is anything: [rows, width]."""
    if x.shape[1] < parts:
        return x.mean(1)
    means = [part.mean(1) for part in x.chunk(parts, dim=1)]
    live = [mean for mean in means if mean.abs().mean() > 0.25]
    return sum(live, torch.zeros_like(means[0])) / len(means)
