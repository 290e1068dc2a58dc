"""Six training steps to diagnose: each is right without checkpointing, and wrong under one implementation or both."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps

import torch
from torch import nn

from recompute_lab.specimens.steps import NON_REENTRANT, Block, Model, Run, power


@dataclass
class Chosen:
    """What a `Mixture` returns: values [N, 16], and how much of each expert went in, [N, 4]."""

    values: torch.Tensor
    shares: torch.Tensor


class Mixture(nn.Module):
    """Four linear experts, mixed by a router: [N, 16] -> `Chosen`."""

    def __init__(self):
        super().__init__()
        self.router, self.experts = nn.Linear(16, 4), nn.Linear(16, 4 * 16)

    def forward(self, x: torch.Tensor) -> Chosen:
        shares = torch.softmax(self.router(x), dim=1)
        values = torch.einsum("ne,ned->nd", shares, self.experts(x).view(-1, 4, 16))
        return Chosen(values, shares)


class Mixed(Model):
    def build(self) -> None:
        self.stem, self.mixture = nn.Linear(16, 16), Mixture()

    def step(self, run: Run = NON_REENTRANT) -> torch.Tensor:
        x = self.stem(self.rows)
        chosen = run(self.mixture, x)
        loss = power(x + chosen.values) + chosen.shares.mean(0).square().sum()
        loss.backward()
        return loss.detach()


@contextmanager
def steering(layer: nn.Module, gain: torch.Tensor) -> Iterator[None]:
    """Inside, the outputs of the layer are amplified, direction by direction."""
    handle = layer.register_forward_hook(lambda module, args, output: output * gain)
    try:
        yield
    finally:
        handle.remove()


class Steered(Model):
    def build(self) -> None:
        self.stem, self.block = nn.Linear(16, 16), Block()
        self.gain = nn.Parameter(torch.linspace(0.5, 1.5, 32))

    def step(self, run: Run = NON_REENTRANT) -> torch.Tensor:
        with steering(self.block.up, self.gain):
            loss = power(run(self.block, self.stem(self.rows)))
        loss.backward()
        return loss.detach()


class Deep(nn.Module):
    """Layers [N, 16] -> [N, 16], each scaled by the next of `scales`, or by 1 at their end."""

    def __init__(self, depth: int = 3):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(depth))

    def forward(self, x: torch.Tensor, scales: Iterator[float]) -> torch.Tensor:
        for layer in self.layers:
            x = x + next(scales, 1.0) * torch.tanh(layer(x))
        return x


class Scaled(Model):
    def build(self) -> None:
        self.stem, self.deep = nn.Linear(16, 16), Deep()

    def step(self, run: Run = NON_REENTRANT) -> torch.Tensor:
        scales = (0.5**depth for depth in range(3))
        loss = power(run(self.deep, self.stem(self.rows), scales))
        loss.backward()
        return loss.detach()


class Averaged(Model):
    """At times it looks at the validation loss of averaged weights: in this step, too."""

    def build(self) -> None:
        self.stem, self.block = nn.Linear(16, 16), Block()
        self.average = Block().requires_grad_(False)

    def swap(self) -> None:
        for ours, theirs in zip(self.block.modules(), self.average.modules(), strict=True):
            ours._parameters, theirs._parameters = theirs._parameters, ours._parameters

    @torch.no_grad()
    def validation_loss(self) -> torch.Tensor:
        return power(self.block(self.stem(self.rows.flip(0))))

    def step(self, run: Run = NON_REENTRANT) -> torch.Tensor:
        loss = power(run(self.block, self.stem(self.rows)))
        self.swap()
        self.validation = self.validation_loss()
        loss.backward()
        self.swap()
        return loss.detach()


class Thrifty(nn.Module):
    """Computes in half the precision where nobody will ask for a gradient: [N, 16] -> [N, 16]."""

    def __init__(self):
        super().__init__()
        self.block = Block()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16, enabled=not torch.is_grad_enabled()):
            return self.block(x).float()


class Economical(Model):
    def build(self) -> None:
        self.stem, self.thrifty = nn.Linear(16, 16), Thrifty()

    def step(self, run: Run = NON_REENTRANT) -> torch.Tensor:
        loss = power(run(self.thrifty, self.stem(self.rows)))
        loss.backward()
        return loss.detach()


def in_halves_if_too_large(function: Callable) -> Callable:
    """Calls it once; where that fails, for want of memory say, once for each half."""

    @wraps(function)
    def patient(self, x: torch.Tensor) -> torch.Tensor:
        try:
            return function(self, x)
        except Exception:
            return torch.cat([function(self, half) for half in x.chunk(2)])

    return patient


class Careful(nn.Module):
    """[N, 16] -> [N, 16]."""

    def __init__(self):
        super().__init__()
        self.block = Block()

    @in_halves_if_too_large
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sigmoid(self.block(x))


class Patient(Model):
    def build(self) -> None:
        self.stem, self.careful = nn.Linear(16, 16), Careful()

    def step(self, run: Run = NON_REENTRANT) -> torch.Tensor:
        loss = power(run(self.careful, self.stem(self.rows)))
        loss.backward()
        return loss.detach()


UNKNOWN: dict[str, Callable[[], Model]] = {
    "A": Mixed,
    "B": Steered,
    "C": Scaled,
    "D": Averaged,
    "E": Economical,
    "F": Patient,
}
_SHOWN = {
    "A": (Chosen, Mixture, Mixed),
    "B": (steering, Steered),
    "C": (Deep, Scaled),
    "D": (Averaged,),
    "E": (Thrifty, Economical),
    "F": (in_halves_if_too_large, Careful, Patient),
}


def source(name: str) -> str:
    """The lines to read. Raises ValueError for a name that is not in UNKNOWN."""
    if name not in _SHOWN:
        raise ValueError(f"there is {', '.join(_SHOWN)} to read; got {name!r}")
    return "\n\n".join(inspect.getsource(part).rstrip() for part in _SHOWN[name])
