"""Segments that keep a running estimate, in buffers. What decides is the order: read, then written, or the reverse."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

import torch
from torch import nn
from torch.nn.functional import normalize
from torch.nn.utils.parametrizations import spectral_norm

from recompute_lab.repairs.recomputation import recomputing
from recompute_lab.specimens.layers import Layers


class Scaled(Layers):
    """What the three moving averages share: `scale`, of the standard deviation of h = first(x)."""

    def __init__(self, seed: int = 0):
        super().__init__(seed)
        self.register_buffer("scale", torch.ones(()))

    def averaged(self, h: torch.Tensor) -> torch.Tensor:
        return torch.lerp(self.scale, h.detach().std(), 0.1)


class ScaleLogged(Scaled):
    """Writes `scale` and reads it in evaluation only: off after training, the gradients are right."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.first(x)
        if not self.training:
            return self.second(torch.tanh(h / self.scale))
        self.scale = self.averaged(h)
        return self.second(torch.tanh(h / h.std()))


class ScaleLoggedOnce(ScaleLogged):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.first(x)
        if not self.training:
            return self.second(torch.tanh(h / self.scale))
        if not recomputing():
            self.scale = self.averaged(h)
        return self.second(torch.tanh(h / h.std()))


class ScaleRead(Scaled):
    """Reads `scale`, then writes it: the recomputation reads what the forward wrote.

    Not to write in the recomputation does not help: it has read by then. It needs the state of the forward's entry.
    """

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.first(x)
        scaled = h / self.scale
        self.scale = self.averaged(h)
        return self.second(torch.tanh(scaled))


class ScaleReadGuarded(ScaleRead):
    """Not a repair: the state is right, the gradients are as wrong as before."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.first(x)
        scaled = h / self.scale
        if not recomputing():
            self.scale = self.averaged(h)
        return self.second(torch.tanh(scaled))


class ScaleReadInPlace(Scaled):
    """Reads `scale`, then changes it in place: autograd raises in the plain run, since the division has saved it.

    Non-reentrant checkpointing saves nothing in the forward, and so does not notice: wrong gradients, without an error.
    """

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.first(x)
        scaled = h / self.scale
        self.scale.copy_(self.averaged(h))
        return self.second(torch.tanh(scaled))


class ScaleWritten(Scaled):
    """Writes `scale`, then reads it: the recomputation writes and reads a second update."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.first(x)
        self.scale = self.averaged(h)
        return self.second(torch.tanh(h / self.scale))


class ScaleWrittenOnce(ScaleWritten):
    """The recomputation reads what the forward wrote; so long as no other call has written in between."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.first(x)
        if not recomputing():
            self.scale = self.averaged(h)
        return self.second(torch.tanh(h / self.scale))


class FakeQuantised(Layers):
    """Writes the range `low`, `high`, a moving average, then rounds h to 16 levels in it, straight through.

    Source: B. Jacob et al., "Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only
    Inference", CVPR 2018, section 3; torch.ao.quantization.FakeQuantize observes and rounds in this order, too.
    """

    def __init__(self, seed: int = 0):
        super().__init__(seed)
        self.register_buffer("low", torch.full((), -1.0))
        self.register_buffer("high", torch.ones(()))

    def observe(self, h: torch.Tensor) -> None:
        low, high = h.detach().aminmax()
        self.low, self.high = torch.lerp(self.low, low, 0.1), torch.lerp(self.high, high, 0.1)

    def quantised(self, h: torch.Tensor) -> torch.Tensor:
        step = (self.high - self.low) / 15
        inside = h.clamp(self.low, self.high)
        rounded = ((inside - self.low) / step).round() * step + self.low
        return inside + (rounded - inside).detach()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.first(x)
        self.observe(h)
        return self.second(torch.tanh(self.quantised(h)))


class FakeQuantisedOnce(FakeQuantised):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.first(x)
        if not recomputing():
            self.observe(h)
        return self.second(torch.tanh(self.quantised(h)))


class Queued(Layers):
    """Reads a bank of earlier features as negatives, then writes its own over the oldest, and moves `pointer`.

    In the recomputation a row meets itself among its negatives. Source: K. He et al., "Momentum Contrast for
    Unsupervised Visual Representation Learning", CVPR 2020, algorithm 1. 32 should be a multiple of N: RuntimeError
    for more rows than the bank has left before its end.
    """

    def __init__(self, seed: int = 0):
        super().__init__(seed)
        self.register_buffer("pointer", torch.zeros((), dtype=torch.long))

    def build(self) -> None:
        super().build()
        self.register_buffer("bank", normalize(torch.randn(32, 16), dim=1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        features = normalize(self.first(x), dim=1)
        negatives = self.bank.clone()
        start = int(self.pointer)
        self.bank[start : start + len(x)] = features.detach()
        self.pointer.copy_((self.pointer + len(x)) % 32)
        nearest = torch.softmax(features @ negatives.T / 0.2, dim=1) @ negatives
        return self.second(features - nearest)


class SpectrallyNormed(Layers):
    """torch's own spectral norm: each forward in train mode writes the power iteration's vectors, then reads them.

    The weights are initialised when the norm is in place, as `model.apply(init)` or a checkpoint of weights does it:
    the vectors are then those of other weights. Source: T. Miyato et al., "Spectral Normalization for Generative
    Adversarial Networks", ICLR 2018.
    """

    def build(self) -> None:
        super().build()
        self.first = spectral_norm(self.first)
        nn.init.xavier_uniform_(self.first.parametrizations.weight.original)


def frozen_in_recomputation(module: nn.Module) -> Callable:
    """A `context_fn` in whose recomputation `module` is in evaluation mode: spectral norm then iterates no further.

    Right for spectral norm, whose two modes differ in the write alone. Wrong for modules whose modes compute
    something else, such as BatchNorm and dropout.
    """
    return lambda: (nullcontext(), _Evaluating(module))


class _Evaluating:
    """Can be entered again, also within itself: it remembers, per entry, what it found."""

    def __init__(self, module: nn.Module):
        self._parts, self._found = list(module.modules()), []

    def __enter__(self) -> None:
        self._found.append([part.training for part in self._parts])
        for part in self._parts:
            part.training = False

    def __exit__(self, *error) -> None:
        for part, training in zip(self._parts, self._found.pop(), strict=True):
            part.training = training
