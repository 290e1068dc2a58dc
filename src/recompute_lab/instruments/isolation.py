"""Run somebody's segment on copies of its arguments, and leave everything as it was."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch.utils._pytree import tree_leaves, tree_map

from recompute_lab.instruments.state import Snapshot


@dataclass
class Call:
    """The arguments of one run: copies that the segment may change, and the leaves at which their gradients arrive."""

    args: tuple
    kwargs: dict
    leaves: dict[str, torch.Tensor]


@contextmanager
def isolated(segment: Callable, *args, **kwargs) -> Iterator[Call]:
    """Yield a `Call` with copied arguments and empty grads; on leaving, all the segment can reach is as before.

    Inside, call `backward(retain_graph=True)`: the segment may have captured a tensor of the caller's own graph.
    Raises TypeError where `segment` cannot be called.
    """
    if not callable(segment):
        raise TypeError(f"a segment is a callable or an nn.Module; got {type(segment).__name__}")
    before = Snapshot(segment, *args, **kwargs)
    before.clear_grads()
    try:
        yield copy_call(*args, **kwargs)
    finally:
        before.restore()


def copy_call(*args, **kwargs) -> Call:
    """Copies of the arguments' tensors, also of those inside lists, tuples and dicts.

    What requires grad is passed as a non-leaf copy of a new leaf: inside a model a segment's input is not a leaf
    either, and the segment may work on it in place.
    """
    leaves: dict[str, torch.Tensor] = {}
    copies: dict[int, torch.Tensor] = {}

    def copy(name: str, value):
        if not isinstance(value, torch.Tensor):
            return value
        if id(value) not in copies:
            tensor = value.detach().clone()
            if value.requires_grad:
                leaves[name] = tensor.requires_grad_()
                with torch.enable_grad():
                    tensor = tensor.clone()
            copies[id(value)] = tensor
        return copies[id(value)]

    return Call(
        tuple(tree_map(functools.partial(copy, f"args[{i}]"), value) for i, value in enumerate(args)),
        {k: tree_map(functools.partial(copy, f"kwargs[{k!r}]"), v) for k, v in kwargs.items()},
        leaves,
    )


def tensors_in(value) -> list[torch.Tensor]:
    """Every tensor in a value that is a tensor or made of tuples, lists and dicts."""
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]
