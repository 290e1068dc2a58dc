"""One block: mix the places, ask an expert, add both to the stream."""

import torch
from torch import nn

from .caps import CAPS
from .experts import Experts
from .health import overflowed
from .mixing import Mixer

BENDS = {0: torch.tanh, 1: torch.sin, 2: torch.erf}  # by how far the activations reach


class Block(nn.Module):
    """[rows, places, width] to the same; `padding` [rows, places] is True where there is no token."""

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.mixer, self.experts = Mixer(config), Experts(config)
        self.cap = CAPS[config.cap](config)
        self.norm = nn.LayerNorm(config.width)
        self.hot = None

    def forward(self, x, padding):
        self.look(x)
        if self.hot:
            x = self.config.hot * torch.tanh(x / self.config.hot)
        update = self.mixer(self.norm(x), padding)
        if self.config.switches.skip_settled and is_settled(update, self.config.tolerance):
            return x
        x = x + self.cap(update, x)
        x = x + self.cap(self.bent(self.experts(self.norm(x))), x)
        if overflowed(x):
            x = torch.nan_to_num(x)
        return clamped(x)

    def look(self, x):
        self.hot = x.abs().amax() > self.config.hot

    def bent(self, x):
        reach = (3 * x.abs().amax()).clamp(max=2)
        return BENDS[int(reach)](x)


def is_settled(update: torch.Tensor, tolerance: float) -> bool:
    return update.abs().max().item() < tolerance


def clamped(x: torch.Tensor) -> torch.Tensor:
    """Keep float16 from growing out of its range."""
    if x.dtype == torch.float16 and torch.isinf(x).any():
        largest = torch.finfo(x.dtype).max - 1000
        x = torch.clamp(x, min=-largest, max=largest)
    return x
