"""Noise on activations, of mean zero or one, drawn from torch's default generator; and a switch that turns it off.

Each kind of noise has `noisy(x)`, [...] -> [...], whose expectation is x, and `variance(x)`, the variance of each of
its elements. A mask is made by `torch.rand` and a comparison, not by `torch.nn.Dropout`: so it is the same numbers on
every CPU, and with the noise off the multiplication stays, with a mask of ones, and as many tensors are saved.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

_on = True


@contextmanager
def noise_off() -> Iterator[None]:
    """Inside, `noisy(x)` is x, computed with the same operations; nothing is drawn."""
    global _on
    before, _on = _on, False  # one switch for all threads: backward runs in its own on a GPU
    try:
        yield
    finally:
        _on = before


@dataclass(frozen=True)
class Dropout:
    """Elements are zero with probability `p`, the others are multiplied by 1 / (1 - p), as in `torch.nn.Dropout`.

    Raises ValueError where p is not in [0, 1).
    """

    p: float

    def __post_init__(self):
        if not 0 <= self.p < 1:
            raise ValueError(f"a probability to drop lies in [0, 1); got {self.p}")

    def mask(self, shape: tuple[int, ...] | torch.Size, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """A new mask of 0 and 1 / (1 - p); all ones where the noise is off."""
        if not _on:
            return torch.ones(shape, dtype=dtype)
        return (torch.rand(shape) >= self.p).to(dtype) / (1 - self.p)

    def noisy(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.mask(x.shape, x.dtype)

    def variance(self, x: torch.Tensor) -> torch.Tensor:
        return x.square() * self.p / (1 - self.p)


@dataclass(frozen=True)
class Gaussian:
    """Elements are multiplied by numbers from N(1, s^2).

    Source: N. Srivastava et al., "Dropout", JMLR 15, 2014, section 10, which takes s^2 = p / (1 - p).
    """

    s: float

    def noisy(self, x: torch.Tensor) -> torch.Tensor:
        return x * (1 + self.s * torch.randn(x.shape, dtype=x.dtype) if _on else torch.ones_like(x))

    def variance(self, x: torch.Tensor) -> torch.Tensor:
        return x.square() * self.s**2

    @classmethod
    def like(cls, dropout: Dropout) -> Gaussian:
        """The one with the variance of a dropout."""
        return cls(math.sqrt(dropout.p / (1 - dropout.p)))


@dataclass(frozen=True)
class Additive:
    """Numbers from N(0, s^2) are added.

    Source: C. M. Bishop, "Training with Noise is Equivalent to Tikhonov Regularization", Neural Computation 7, 1995.
    """

    s: float

    def noisy(self, x: torch.Tensor) -> torch.Tensor:
        return x + (self.s * torch.randn(x.shape, dtype=x.dtype) if _on else torch.zeros_like(x))

    def variance(self, x: torch.Tensor) -> torch.Tensor:
        return torch.full_like(x, self.s**2)
