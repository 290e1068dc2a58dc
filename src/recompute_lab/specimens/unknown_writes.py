"""Three segments to review, [N, 16] -> [N, 16]: what do they do other than return a value?"""

from __future__ import annotations

import inspect
from collections.abc import Callable

import numpy as np
import torch
from torch import nn

from recompute_lab.specimens.layers import Layers


class Smoothed(Layers):
    """Centres h = first(x), as BatchNorm does, and comes in over its first ten calls."""

    def build(self) -> None:
        super().build()
        self.first = nn.Linear(16, 16, bias=False)  # centring would take a bias away
        self.calls = 0
        self.register_buffer("mean", torch.zeros(16))

    def forward(self, x: torch.Tensor, history=[]) -> torch.Tensor:
        h = self.first(x)
        mean = h.mean(0) if self.training else self.mean
        if self.training:
            self.mean = torch.lerp(self.mean, mean.detach(), 0.1)
            self.calls += 1
        history.append(float(mean.detach().norm()))
        return self.second(min(1.0, self.calls / 10) * torch.tanh(h - mean))


def watched(layer: nn.Module, seen: dict) -> nn.Module:
    """The layer, which keeps its largest output in `seen`."""

    def keep_largest(module, args, output):
        seen["largest"] = max(seen.get("largest", 0.0), float(output.detach().abs().max()))

    layer.register_forward_hook(keep_largest)
    return layer


class Gated(Layers):
    """Adds a position to x, and closes one column in five at random."""

    opened = 0

    def build(self) -> None:
        super().build()
        self.first = watched(self.first, seen={})
        self.position = nn.Parameter(torch.randn(16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate = (torch.rand(16) >= 0.2).float()
        Gated.opened += int(gate.sum())
        return self.second(torch.tanh(self.first(x + self.position)) * gate)


TEMPERATURE = 2.0


def sharpened(x: torch.Tensor) -> torch.Tensor:
    """A noisy softmax over columns, whose temperature is lowered from call to call."""
    global TEMPERATURE
    TEMPERATURE = max(1.0, 0.99 * TEMPERATURE)
    sharpened.calls += 1
    noise = torch.from_numpy(np.random.standard_normal(x.shape)).float()
    return x * torch.softmax((x + 0.1 * noise) / TEMPERATURE, dim=1)


sharpened.calls = 0


def read() -> tuple:
    """All that `sharpened` writes, as it is now."""
    return TEMPERATURE, sharpened.calls, np.random.get_state()


def write(state: tuple) -> None:
    """Put back what `read` returned."""
    global TEMPERATURE
    TEMPERATURE, sharpened.calls = state[:2]
    np.random.set_state(state[2])


UNKNOWN: dict[str, Callable[[], Callable]] = {"Smoothed": Smoothed, "Gated": Gated, "sharpened": lambda: sharpened}


def source(name: str) -> str:
    """The lines to review. Raises ValueError for a name that is not in UNKNOWN."""
    shown = {"Smoothed": (Smoothed,), "Gated": (watched, Gated), "sharpened": (sharpened,)}
    if name not in shown:
        raise ValueError(f"there is {', '.join(shown)} to review; got {name!r}")
    return "\n\n".join(inspect.getsource(part) for part in shown[name])
