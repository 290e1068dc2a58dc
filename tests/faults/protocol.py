"""Code that does not keep to what saved tensors and early stop ask of it."""

from __future__ import annotations

import contextlib

import torch
from torch import nn

from faults import LOUD, REPLAYABLE, SIDE_EFFECT, SILENT, fault


class Modulated(torch.autograd.Function):
    """x * scale; its backward asks for the saved tensors once for each."""

    @staticmethod
    def forward(ctx, x, scale):
        ctx.save_for_backward(x, scale)
        return x * scale

    @staticmethod
    def backward(ctx, gradient):
        x = ctx.saved_tensors[0]
        scale = ctx.saved_tensors[1]
        return gradient * scale, (gradient * x).sum(0)


class Modulating(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.mix, self.scale = nn.Linear(width, width), nn.Parameter(torch.rand(width))

    def forward(self, x):
        return Modulated.apply(self.mix(x), self.scale)


@fault(r"saved_tensors|unpack", LOUD, REPLAYABLE)
def saved_tensors_asked_for_twice():
    """Non-reentrant hands each recomputed tensor out once."""
    return Modulating(4), (torch.randn(5, 4, requires_grad=True),)


class Projected(torch.autograd.Function):
    """x @ weight, with the weight kept on ctx: no hook and no version check sees it."""

    @staticmethod
    def forward(ctx, x, weight):
        ctx.weight = weight
        return x @ weight

    @staticmethod
    def backward(ctx, gradient):
        return gradient @ ctx.weight.mT, None


class Offloaded(nn.Module):
    """Frozen weights that are fetched, one after the other, into one piece of fast memory."""

    def __init__(self, width: int, layers: int):
        super().__init__()
        self.slow = [torch.randn(width, width) / width**0.5 for _ in range(layers)]
        self.fast = torch.zeros(width, width)

    def layer(self, number: int, own_memory: bool):
        def run(x):
            fetched = self.slow[number] if own_memory else self.fast.copy_(self.slow[number])
            return Projected.apply(torch.sin(x), fetched)

        return run


def layer_by_layer(checkpoint, model, x):
    for number in range(len(model.slow)):
        x = checkpoint(model.layer(number, own_memory=checkpoint.use_reentrant is None), x)
    return x


@fault(r"ctx|save_for_backward|fast", SILENT, SIDE_EFFECT, proven=False, driver=layer_by_layer)
def weight_on_ctx_in_shared_memory():
    """Backward reads the shared memory as the last layer has left it. The plain run has weights of its own.

    Reentrant keeps no ctx of its first pass; only what is in the shared memory at the end is another layer's.
    """
    return Offloaded(5, 3), (torch.randn(4, 5, requires_grad=True),)


class WithFallback(nn.Module):
    """A fast kernel, and one for where the fast one fails."""

    def __init__(self, width: int):
        super().__init__()
        self.mix = nn.Linear(width, width)

    def forward(self, x):
        h = self.mix(x)
        try:
            return torch.sigmoid(h)
        except Exception:
            return torch.exp(h) / (1 + torch.exp(h))


@fault(r"except|early.stop", LOUD, REPLAYABLE)
def broad_except():
    """Early stop leaves the segment by an exception, from the operator that saves the last tensor."""
    return WithFallback(4), (torch.randn(5, 4, requires_grad=True),)


class Suppressing(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.mix = nn.Linear(width, width)

    def forward(self, x):
        h, result = self.mix(x), None
        with contextlib.suppress(Exception):
            result = torch.tanh(h)
        return torch.tanh(h * 1.0) if result is None else result


@fault(r"except|suppress|early.stop", LOUD, REPLAYABLE)
def exceptions_suppressed():
    return Suppressing(4), (torch.randn(5, 4, requires_grad=True),)


class Bracketed(nn.Module):
    """Enters itself on a stack and leaves it at its end, which early stop does not come to."""

    def __init__(self, width: int):
        super().__init__()
        self.mix, self.entered = nn.Linear(width, width), []

    def forward(self, x):
        self.entered.append("mix")
        h = torch.tanh(self.mix(x))
        self.entered.pop()
        return h


@fault(r"entered", SIDE_EFFECT, REPLAYABLE)
def bracket_left_open_by_early_stop():
    return Bracketed(4), (torch.randn(5, 4, requires_grad=True),)


class Reserved(nn.Module):
    """Says that it is at work, and when it is done: early stop leaves it at work for good."""

    def __init__(self, width: int):
        super().__init__()
        self.mix, self.at_work = nn.Linear(width, width), False

    def forward(self, x):
        assert not self.at_work, "somebody else is using this block"
        self.at_work = True
        h = torch.sigmoid(self.mix(x))
        self.at_work = False
        return h


def two_steps(checkpoint, segment, first, second):
    return checkpoint(segment, first).sum(), segment


def two_backwards(output, segment):
    loss, _ = output
    loss.backward(retain_graph=True)
    loss.backward()


@fault(
    r"at_work", LOUD, REPLAYABLE, driver=two_steps, backward=two_backwards,
    missed={"watched reentrant": "that it was early stop which left it so is not known to the second recomputation"},
)  # fmt: skip
def reservation_kept_by_early_stop():
    """The second backward's recomputation finds the block taken."""
    return Reserved(4), (torch.randn(5, 4, requires_grad=True), torch.randn(5, 4))
