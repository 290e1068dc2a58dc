"""Root cause 8: the agreement on saved tensors is broken. Reentrant has no part in it: here it is the right one.

Non-reentrant hands each saved tensor out once, leaves the recomputation by an exception, and recomputes what went
through `save_for_backward`, nothing else.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.autograd import Function

from recompute_lab.specimens.steps import NON_REENTRANT, Model, Run, power


class Swish(Function):
    """x * sigmoid(x), with a backward of its own, which asks for its saved tensors twice."""

    @staticmethod
    def forward(ctx, x):
        gate = torch.sigmoid(x)
        ctx.save_for_backward(x, gate)
        return x * gate

    @staticmethod
    def backward(ctx, gradient):
        gate = ctx.saved_tensors[1]
        return gradient * gate * (1 + ctx.saved_tensors[0] * (1 - gate))


class SwishOnce(Swish):
    """Asks once."""

    @staticmethod
    def backward(ctx, gradient):
        x, gate = ctx.saved_tensors
        return gradient * gate * (1 + x * (1 - gate))


class Activated(nn.Module):
    """activation(layer(x)): [N, 16] -> [N, 16]."""

    def __init__(self, activation: type[Function]):
        super().__init__()
        self.layer, self.activation = nn.Linear(16, 16), activation

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.activation.apply(self.layer(x))


class UnpackedTwice(Model):
    activation = Swish

    def build(self) -> None:
        self.stem, self.activated = nn.Linear(16, 16), Activated(self.activation)

    def step(self, run: Run = NON_REENTRANT) -> torch.Tensor:
        loss = power(run(self.activated, self.stem(self.rows)))
        loss.backward()
        return loss.detach()


class UnpackedOnce(UnpackedTwice):
    activation = SwishOnce


def fused_gelu(x: torch.Tensor) -> torch.Tensor:
    """Stands for a kernel that is not there on every machine. Raises NotImplementedError for other dtypes."""
    if x.dtype is not torch.float32:
        raise NotImplementedError(f"no kernel for {x.dtype}")
    return nn.functional.gelu(x)


class WithFallback(nn.Module):
    """The fused kernel; where it fails, by hand. The signal to stop the recomputation looks like a failure."""

    def __init__(self):
        super().__init__()
        self.up = nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.up(x)
        try:
            return fused_gelu(h)
        except Exception:
            return h * 0.5 * (1 + torch.erf(h / 2**0.5))


class WithNamedFallback(WithFallback):
    """Catches what the kernel raises, and nothing else."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.up(x)
        try:
            return fused_gelu(h)
        except NotImplementedError:
            return h * 0.5 * (1 + torch.erf(h / 2**0.5))


class Swallowed(Model):
    block = WithFallback

    def build(self) -> None:
        self.stem, self.gelu = nn.Linear(16, 16), self.block()

    def step(self, run: Run = NON_REENTRANT) -> torch.Tensor:
        loss = power(run(self.gelu, self.stem(self.rows)))
        loss.backward()
        return loss.detach()


class SwallowedNoMore(Swallowed):
    block = WithNamedFallback


class Ring:
    """Two workspaces [32, 16], handed out in turn: memory that nobody has to allocate."""

    def __init__(self):
        self.spaces, self.turn = [torch.zeros(32, 16) for _ in range(2)], 0

    def next(self) -> torch.Tensor:
        self.turn += 1
        return self.spaces[self.turn % 2]


class Gate(Function):
    """x * sigmoid(x); the sigmoid goes to a workspace, and that to ctx."""

    @staticmethod
    def forward(ctx, x, space):
        torch.sigmoid(x, out=space)
        ctx.save_for_backward(x)
        ctx.gate = space
        return x * space

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient * ctx.gate * (1 + x * (1 - ctx.gate)), None


class GateSaved(Function):
    """What backward needs goes through `save_for_backward`: torch frees it, recomputes it, and sees what changes it."""

    @staticmethod
    def forward(ctx, x):
        gate = torch.sigmoid(x)
        ctx.save_for_backward(x, gate)
        return x * gate

    @staticmethod
    def backward(ctx, gradient):
        x, gate = ctx.saved_tensors
        return gradient * gate * (1 + x * (1 - gate))


class Gated(nn.Module):
    """gate(layer(x)), in a workspace of the ring's: [32, 16] -> [32, 16]."""

    def __init__(self, ring: Ring):
        super().__init__()
        self.layer, self.ring = nn.Linear(16, 16), ring

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return Gate.apply(self.layer(x), self.ring.next())


class OnCtx(Model):
    """Two layers, two workspaces: enough for a forward. Each recomputation takes the next one in turn.

    So the second layer's takes the first layer's, whose backward then reads, on ctx, what has been written over it.
    """

    def build(self) -> None:
        ring = Ring()
        self.stem, self.layers = nn.Linear(16, 16), nn.ModuleList(Gated(ring) for _ in range(2))

    def step(self, run: Run = NON_REENTRANT) -> torch.Tensor:
        x = self.stem(self.rows)
        for layer in self.layers:
            x = run(layer, x)
        loss = power(x)
        loss.backward()
        return loss.detach()


class Saved(OnCtx):
    """No ring: what checkpointing recomputes, allocator and all, needs no memory of its own."""

    def build(self) -> None:
        self.stem, self.layers = nn.Linear(16, 16), nn.ModuleList(Activated(GateSaved) for _ in range(2))
