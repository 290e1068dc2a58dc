"""The segment draws from a stream that nobody rewinds."""

from __future__ import annotations

import random

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from faults import LOUD, SILENT, fault


@fault(r"torch.*RNG|rng.*torch|preserve_rng_state", SILENT, SILENT, options={"preserve_rng_state": False})
def dropout_not_replayed():
    """The loss belongs to one mask, the gradient to another; shapes and counts agree."""
    return nn.Sequential(nn.Linear(5, 20), nn.ReLU(), nn.Dropout(0.4), nn.Linear(20, 3)), (torch.randn(7, 5),)


class Stochastic(nn.Module):
    """A residual block that is left out now and then."""

    def __init__(self, width: int, seed: int):
        super().__init__()
        self.enter, self.block, self.leave = (nn.Linear(width, width) for _ in range(3))
        random.seed(seed)

    def forward(self, x):
        h = F.silu(self.enter(x))
        if random.random() < 0.5:
            h = h + F.silu(self.block(h))
        return F.silu(self.leave(h))


def seed_for(*kept: bool) -> int:
    """Of Python's stream, by which the first draws come out as wished."""
    return next(s for s in range(1000) if [d < 0.5 for d in draws(s, len(kept))] == list(kept))


def draws(seed: int, number: int) -> list[float]:
    stream = random.Random(seed)
    return [stream.random() for _ in range(number)]


@fault(r"python.*random|rng.*python|random\.", LOUD, SILENT)
def block_kept_then_left_out():
    return Stochastic(5, seed_for(True, False)), (torch.randn(6, 5, requires_grad=True),)


@fault(r"python.*random|rng.*python|random\.", SILENT, SILENT)
def block_left_out_then_kept():
    return Stochastic(5, seed_for(False, True)), (torch.randn(6, 5, requires_grad=True),)


class Noisy(nn.Module):
    """Multiplies by noise that `draw(shape)` gives as an array."""

    def __init__(self, width: int, draw):
        super().__init__()
        self.mix, self.draw = nn.Linear(width, width), draw

    def forward(self, x):
        h = self.mix(x)
        return torch.sigmoid(h * torch.as_tensor(self.draw(h.shape), dtype=h.dtype))


def numpy_uniform(shape):
    return np.random.uniform(0.5, 1.5, size=tuple(shape))


@fault(r"numpy", SILENT, SILENT)
def noise_of_numpy():
    return Noisy(4, numpy_uniform), (torch.randn(5, 4, requires_grad=True),)


class Perturbed(nn.Module):
    """Noise from a generator that the module keeps, by whatever library."""

    def __init__(self, width: int, generator):
        super().__init__()
        self.mix, self.noise = nn.Linear(width, width), generator

    def forward(self, x):
        h = self.mix(x)
        if isinstance(self.noise, torch.Generator):
            drawn = torch.randn(h.shape, generator=self.noise)
        elif isinstance(self.noise, random.Random):
            drawn = torch.tensor([self.noise.gauss(0, 1) for _ in range(h.shape[-1])])
        else:
            drawn = torch.as_tensor(self.noise.normal(size=tuple(h.shape)), dtype=h.dtype)
        return torch.exp(h * 0.2 + drawn)


@fault(r"\bnoise\b", SILENT, SILENT)
def generator_of_the_module():
    return Perturbed(4, torch.Generator().manual_seed(3)), (torch.randn(5, 4, requires_grad=True),)


@fault(r"\bnoise\b", SILENT, SILENT)
def python_generator_of_the_module():
    return Perturbed(4, random.Random(3)), (torch.randn(5, 4, requires_grad=True),)


@fault(r"\bnoise\b", SILENT, SILENT)
def numpy_random_state_of_the_module():
    return Perturbed(4, np.random.RandomState(3)), (torch.randn(5, 4, requires_grad=True),)


@fault(r"\bnoise\b", SILENT, SILENT)
def numpy_generator_of_the_module():
    return Perturbed(4, np.random.default_rng(3)), (torch.randn(5, 4, requires_grad=True),)


_STREAM = torch.Generator()


def masked(x, share: float = 0.4):
    keep = torch.rand(x.shape, generator=_STREAM) >= share
    return torch.tanh(x) * keep / (1 - share)


@fault(r"_STREAM", SILENT, SILENT)
def global_generator():
    _STREAM.manual_seed(5)
    return masked, (torch.randn(6, 5, requires_grad=True),)


def jittered(x, generator):
    return torch.sin(x * (1 + 0.3 * torch.randn(x.shape, generator=generator)))


@fault(r"args\[1\]|[Gg]enerator", SILENT, SILENT)
def generator_as_an_argument():
    return jittered, (torch.randn(6, 5, requires_grad=True), torch.Generator().manual_seed(1))


class Shuffled(nn.Module):
    """Shuffles the channels between its two halves."""

    def __init__(self, width: int):
        super().__init__()
        self.first, self.second = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x):
        order = list(range(x.shape[-1]))
        random.shuffle(order)
        return torch.tanh(self.second(torch.tanh(self.first(x))[:, order]))


@fault(r"python.*random|random\.", SILENT, SILENT)
def channels_shuffled():
    return Shuffled(6), (torch.randn(5, 6, requires_grad=True),)


class OneOfSome(nn.Module):
    """One branch a call, drawn by NumPy: no shape tells which."""

    def __init__(self, width: int, branches: int):
        super().__init__()
        self.branches = nn.ModuleList(nn.Linear(width, width) for _ in range(branches))

    def forward(self, x):
        return torch.tanh(self.branches[int(np.random.randint(len(self.branches)))](x))


@fault(r"numpy", SILENT, SILENT)
def branch_drawn_by_numpy():
    return OneOfSome(4, 64), (torch.randn(5, 4, requires_grad=True),)


class Entropic(nn.Module):
    """Noise from the operating system: no seed, and nothing to rewind."""

    def __init__(self, width: int):
        super().__init__()
        self.mix, self.source = nn.Linear(width, width), random.SystemRandom()

    def forward(self, x):
        return torch.tanh(self.mix(x) * self.source.uniform(0.5, 1.5))


@fault(
    r"repeat|source|SystemRandom",
    SILENT,
    SILENT,
    proven=False,
)
def noise_of_the_operating_system():
    return Entropic(4), (torch.randn(5, 4, requires_grad=True),)


class Thinned(nn.Module):
    """Keeps as many rows as NumPy says, the next time fewer."""

    def __init__(self, width: int):
        super().__init__()
        self.mix, self.draws = nn.Linear(width, width), np.random.default_rng(4)

    def forward(self, x):
        rows = self.draws.permutation(x.shape[0])[0] + 1
        return torch.tanh(self.mix(x[:rows]))


@fault(r"draws", LOUD, LOUD)
def rows_left_out_at_random():
    """The gradients that arrive at reentrant's recomputation do not fit its output."""
    return Thinned(4), (torch.randn(9, 4, requires_grad=True),)
