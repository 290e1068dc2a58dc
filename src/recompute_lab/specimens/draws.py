"""Segments that draw masks, each from another random stream.

A draw is `draw(shape) -> tensor of that shape, float32`: 0.0 with probability `p`, else 1 / (1 - p), as dropout has it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import nn


class Draw:
    """Uniform numbers of one stream of the CPU, turned into a mask; on `device`, where one is named."""

    def __init__(self, p: float = 0.5, seed: int = 0, device: torch.device | None = None):
        if not 0 <= p < 1:
            raise ValueError(f"p is the share that is dropped, from 0 up to, not including, 1; got {p}")
        self.p, self.device = p, device

    def uniform(self, shape: Sequence[int]) -> torch.Tensor:
        raise NotImplementedError

    def __call__(self, shape: Sequence[int]) -> torch.Tensor:
        mask = (self.uniform(shape) >= self.p) / (1 - self.p)
        return mask.to(self.device) if self.device else mask


class TorchDefault(Draw):
    """torch's default generator, as `nn.Dropout` uses it."""

    def uniform(self, shape: Sequence[int]) -> torch.Tensor:
        return torch.rand(shape)


class TorchGenerator(Draw):
    """A `torch.Generator` of the module's own."""

    def __init__(self, p: float = 0.5, seed: int = 0, device: torch.device | None = None):
        super().__init__(p, seed, device)
        self.generator = torch.Generator().manual_seed(seed)

    def uniform(self, shape: Sequence[int]) -> torch.Tensor:
        return torch.rand(shape, generator=self.generator)


class NumpyDefault(Draw):
    """NumPy's default stream, behind `np.random.rand`."""

    def uniform(self, shape: Sequence[int]) -> torch.Tensor:
        return torch.as_tensor(np.random.random_sample(shape), dtype=torch.float32)


class NumpyGenerator(Draw):
    """A NumPy generator of the module's own."""

    def __init__(self, p: float = 0.5, seed: int = 0, device: torch.device | None = None):
        super().__init__(p, seed, device)
        self.generator = np.random.default_rng(seed)

    def uniform(self, shape: Sequence[int]) -> torch.Tensor:
        return torch.as_tensor(self.generator.random(shape), dtype=torch.float32)


class PythonDefault(Draw):
    """Python's `random`."""

    def uniform(self, shape: Sequence[int]) -> torch.Tensor:
        return torch.tensor([random.random() for _ in range(torch.Size(shape).numel())]).view(shape)


DRAWS: dict[str, type[Draw]] = {
    "torch's default": TorchDefault,
    "a torch.Generator": TorchGenerator,
    "NumPy's default": NumpyDefault,
    "a NumPy Generator": NumpyGenerator,
    "Python's random": PythonDefault,
}


class MaskedLayers(nn.Module):
    """Residual layers, each with a mask of its own: [N, width] -> [N, width]. This is what is checkpointed."""

    def __init__(self, draw: Callable, layers: int = 4, width: int = 16, seed: int = 0):
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))
        self.draw = draw

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = x + torch.tanh(layer(x) * self.draw(x.shape))
        return x
