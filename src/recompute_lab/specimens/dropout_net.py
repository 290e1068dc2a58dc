"""A residual network with dropout, in many replicas at once: each has weights of its own, all run in one batched step.

Replicas cost little more than one network of this size, which is mostly overhead; and spread over seeds is what the
lesson needs. Tensors have the replica as their first dimension: S replicas, B images each.

A block's output is linear in its mask. With each block a segment of its own, the inputs of all blocks are the
forward's, and the gradient is a product in which each mask of the recomputation occurs once: its mean over fresh,
independent masks is the gradient with all of them one. So "lost" and "off" have the same expectation, as in the linear
unit. In one segment of several blocks they have not: there the recomputed masks change what later blocks are given.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import nn
from torch.nn import functional as F

from recompute_lab.specimens.noise import Dropout

SEGMENTS = ("block", "trunk", "loss")


def plain(segment: Callable, *args):
    """The way to run a segment without checkpointing."""
    return segment(*args)


class Linear(nn.Module):
    """One linear layer per replica: [S, B, inputs] -> [S, B, outputs]. Weights are drawn as in `torch.nn.Linear`."""

    def __init__(self, generators: Sequence[torch.Generator], inputs: int, outputs: int):
        super().__init__()
        bound = 1 / math.sqrt(inputs)

        def drawn(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.stack([(2 * torch.rand(shape, generator=g) - 1) * bound for g in generators]))

        self.weight, self.bias = drawn(inputs, outputs), drawn(1, outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.baddbmm(self.bias, x, self.weight)


class Block(nn.Module):
    """x + down(dropout(relu(up(norm(x))))), [S, B, width] -> [S, B, width]."""

    def __init__(self, generators: Sequence[torch.Generator], width: int, noise: Dropout | None):
        super().__init__()
        self.up, self.down = Linear(generators, width, width), Linear(generators, width, width)
        self.noise = noise

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.relu(self.up(F.layer_norm(x, x.shape[-1:])))
        return x + self.down(self.noise.noisy(hidden) if self.noise else hidden)


class DropoutNet(nn.Module):
    """Images [S, B, 64] -> logits [S, B, 10]: `depth` blocks, `stochastic` of them (all by default) with dropout.

    One replica per seed; equal seeds give equal weights. The stochastic blocks are spread evenly over the depth. Raises
    ValueError where there are more of them than blocks.
    """

    def __init__(self, seeds: Sequence[int], p: float, depth: int, stochastic: int | None = None, width: int = 64):
        super().__init__()
        stochastic = depth if stochastic is None else stochastic
        if not 0 <= stochastic <= depth:
            raise ValueError(f"of {depth} blocks, {stochastic} cannot be stochastic")
        generators = [torch.Generator().manual_seed(seed) for seed in seeds]
        self.embed = Linear(generators, 64, width)
        has_noise = [(i + 1) * stochastic // depth > i * stochastic // depth for i in range(depth)]
        self.blocks = nn.Sequential(*(Block(generators, width, Dropout(p) if noisy else None) for noisy in has_noise))
        self.head = Linear(generators, width, 10)

    def forward(self, images: torch.Tensor, run: Callable = plain, segment: str = "block") -> torch.Tensor:
        """`run(segment, x)` runs each "block" as a segment of its own, or the whole "trunk" as one."""
        x = self.embed(images)
        for part in self.blocks if segment == "block" else [self.blocks]:
            x = run(part, x)
        return self.head(x)

    def losses(
        self, images: torch.Tensor, labels: torch.Tensor, run: Callable = plain, segment: str = "block"
    ) -> torch.Tensor:
        """The mean cross-entropy of each replica, [S], in nats, for labels [S, B], int64.

        `segment` is what is checkpointed: every "block", the "trunk", or everything with the "loss" at its end. Raises
        ValueError for any other.
        """
        if segment not in SEGMENTS:
            raise ValueError(f"a segment is one of {', '.join(SEGMENTS)}; got {segment!r}")
        if segment == "loss":
            # An input that requires grad, since reentrant checkpointing cuts off a segment without one.
            return run(lambda x: cross_entropy(self(x), labels), images.detach().clone().requires_grad_())
        return cross_entropy(self(images, run, segment), labels)

    def gradients(self, images: torch.Tensor, labels: torch.Tensor, **how) -> torch.Tensor:
        """The gradient of each replica's loss, over all its parameters, [S, P]; `how` as for `losses`."""
        self.zero_grad()
        self.losses(images, labels, **how).sum().backward()
        return torch.cat([parameter.grad.flatten(1) for parameter in self.parameters()], 1)

    def replicated(self, replica: int, times: int) -> DropoutNet:
        """A network whose `times` replicas all have the weights of one of this one's."""
        noise = [block.noise for block in self.blocks]
        stochastic = [n for n in noise if n]
        p = stochastic[0].p if stochastic else 0.0
        copy = DropoutNet([0] * times, p, len(noise), len(stochastic), width=self.embed.weight.shape[-1])
        with torch.no_grad():
            for mine, theirs in zip(self.parameters(), copy.parameters(), strict=True):
                theirs.copy_(mine[replica].expand_as(theirs))
        return copy


def cross_entropy(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """The mean over images, [S, B, 10] and [S, B] -> [S]."""
    return F.cross_entropy(logits.transpose(1, 2), labels, reduction="none").mean(1)
