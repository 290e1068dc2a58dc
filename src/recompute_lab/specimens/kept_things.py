"""Segments that keep tensors from call to call: a cache, a table, collected losses, what a hook sees."""

from __future__ import annotations

import torch
from torch import nn

from recompute_lab.repairs.recomputation import recomputing
from recompute_lab.specimens.layers import Layers


class Cached(Layers):
    """Attends over all rows so far: reads the cached keys and values, then appends its own.

    The recomputation finds its own rows in the cache: other shapes, which the non-reentrant implementation notices.
    """

    def __init__(self, seed: int = 0):
        super().__init__(seed)
        self.keys, self.values = [], []

    def build(self) -> None:
        self.query, self.key, self.value = (nn.Linear(16, 16, bias=False) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        key, value = self.key(x), self.value(x)
        keys, values = torch.cat([*self.keys, key]), torch.cat([*self.values, value])
        self.keys.append(key.detach())
        self.values.append(value.detach())
        return x + torch.softmax(self.query(x) @ keys.T / 4, dim=1) @ values


class CachedAt(Cached):
    """The caller says where: `forward(x, start)` writes rows from `start` on, and reads those before.

    A second write puts the same numbers in the same place. Room for 512 rows.
    """

    def __init__(self, seed: int = 0):
        super().__init__(seed)
        del self.keys, self.values
        self.register_buffer("keys", torch.zeros(512, 16))
        self.register_buffer("values", torch.zeros(512, 16))

    def forward(self, x: torch.Tensor, start: int) -> torch.Tensor:
        key, value = self.key(x), self.value(x)
        keys, values = torch.cat([self.keys[:start], key]), torch.cat([self.values[:start], value])
        self.keys[start : start + len(x)] = key.detach()
        self.values[start : start + len(x)] = value.detach()
        return x + torch.softmax(self.query(x) @ keys.T / 4, dim=1) @ values

    def arguments(self, call: int, rows: int) -> tuple:
        return (call * rows,)


class Rotary(Layers):
    """Rotates pairs of columns by position times a trainable frequency; the first call of a step builds the table.

    The recomputation finds the table there. Non-reentrant: it saves fewer tensors, and raises. Reentrant: the table is
    from the first pass, which has gradients switched off, so the frequencies get none. Source: J. Su et al., "RoFormer:
    Enhanced Transformer with Rotary Position Embedding", 2021.
    """

    def __init__(self, seed: int = 0):
        super().__init__(seed)
        self.frequencies = nn.Parameter(100.0 ** -torch.linspace(0, 1, 8))
        self.table = None

    def built(self, positions: int) -> tuple[torch.Tensor, torch.Tensor]:
        angles = torch.outer(torch.arange(positions), self.frequencies)
        return angles.cos(), angles.sin()

    def rotated(self, h: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        a, b = h.chunk(2, dim=1)
        return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.table is None:
            self.table = self.built(len(x))
        return self.second(torch.tanh(self.rotated(self.first(x), *self.table)))

    def begin_step(self) -> None:
        self.table = None  # the optimizer has changed the frequencies


class RotaryBuilt(Rotary):
    """Builds the table in each call: what checkpointing recomputes anyway need not be kept."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.tanh(self.rotated(self.first(x), *self.built(len(x)))))


class Routed(Layers):
    """Two experts and a router, whose balance loss it appends to `losses`; the caller adds them to the loss.

    The list is twice as long. Non-reentrant: the first term has a graph, and the gradients are right. Reentrant: it has
    none, and what the balance loss should tell the router is lost. Source: N. Shazeer et al., "Outrageously Large
    Neural Networks", ICLR 2017, section 4.
    """

    def __init__(self, seed: int = 0):
        super().__init__(seed)
        self.losses = []

    def build(self) -> None:
        super().build()
        self.router = nn.Linear(16, 2)

    def mixed(self, x: torch.Tensor, shares: torch.Tensor) -> torch.Tensor:
        return x + shares[:, :1] * torch.tanh(self.first(x)) + shares[:, 1:] * torch.tanh(self.second(x))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        shares = torch.softmax(self.router(x), dim=1)
        self.losses.append(shares.mean(0).square().sum())
        return self.mixed(x, shares)

    def begin_step(self) -> None:
        self.losses.clear()

    def terms(self, outputs: list) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        return outputs, self.losses


class RoutedReturned(Routed):
    """Returns the balance loss: [N, 16] -> ([N, 16], scalar). What leaves by `return` is in the graph, and once."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        shares = torch.softmax(self.router(x), dim=1)
        balance = shares.mean(0).square().sum()
        return self.mixed(x, shares), balance

    def terms(self, outputs: list) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        return [output for output, _ in outputs], [balance for _, balance in outputs]


def logged(once: bool = False) -> Layers:
    """Layers with a hook from outside, which writes each mean activation to a list, and does not read it."""
    layers, means = Layers(), []

    def log(module, args, output):
        means.append(float(output.detach().mean()))

    def log_once(module, args, output):
        if not recomputing():
            means.append(float(output.detach().mean()))

    layers.first.register_forward_hook(log_once if once else log)
    return layers


def centred(once: bool = False) -> Layers:
    """Layers with a hook that writes a running mean, then subtracts it: the recomputation subtracts another one."""
    layers, running = Layers(), torch.zeros(16)

    def centre(module, args, output):
        running.lerp_(output.detach().mean(0), 0.1)
        return output - running

    def centre_once(module, args, output):
        if not recomputing():
            running.lerp_(output.detach().mean(0), 0.1)
        return output - running

    layers.first.register_forward_hook(centre_once if once else centre)
    return layers


class Normed(Layers):
    """The good case: the statistic is of the sample itself, and from the segment's input. Nothing is written."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.first(x)
        return self.second(h / h.norm(dim=1, keepdim=True))


class NormKept(Layers):
    """Writes `last_norm` in each call, from the input alone: the second write puts the same value there."""

    def build(self) -> None:
        super().build()
        self.last_norm = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.first(x)
        self.last_norm = h.detach().norm(dim=1, keepdim=True)
        return self.second(torch.tanh(h))
