"""Run somebody's segment on copies of its arguments, and leave everything as it was."""

from __future__ import annotations

import dataclasses
import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch.utils._pytree import keystr, tree_leaves, tree_map_with_path

from recompute_lab.instruments.interrupts import stacks_kept, uninterrupted
from recompute_lab.instruments.state import Snapshot


@dataclass
class Call:
    """The arguments of one run: copies that the segment may change, and the leaves at which their gradients arrive.

    `before` is the state that the run began from; None where the call was not isolated.
    """

    args: tuple
    kwargs: dict
    leaves: dict[str, torch.Tensor]
    before: Snapshot | None = None


@contextmanager
def isolated(segment: Callable, *args, **kwargs) -> Iterator[Call]:
    """Yield a `Call` with copied arguments and empty grads; on leaving, all the segment can reach is as before.

    Raises TypeError where `segment` cannot be called.
    """
    before = Snapshot(segment, *args, **kwargs)
    try:
        before.clear_grads()
        call = copy_call(*args, **kwargs)
        call.before = before
        with stacks_kept(), _graphs_kept():
            yield call
    finally:
        before.restore()


@contextmanager
def _graphs_kept() -> Iterator[None]:
    """Let no backward free its graph: the segment may have captured a tensor of the caller's, who still needs it.

    Replacing torch's function also reaches the backward that reentrant checkpointing runs for itself. Instruments may
    run in several threads: the first one in replaces it, the last one out puts it back.
    """
    global _backward, _users
    counted = False
    try:
        with uninterrupted(), _LOCK:
            counted = True
            _users += 1
            if _users == 1:
                _backward = torch.autograd.backward
                torch.autograd.backward = _keeping
        yield
    finally:
        with uninterrupted(), _LOCK:
            _users -= counted
            if _users == 0:
                torch.autograd.backward = _backward


_LOCK, _users, _backward = threading.Lock(), 0, torch.autograd.backward


def _keeping(tensors, grad_tensors=None, retain_graph=None, *rest, **named):
    return _backward(tensors, grad_tensors, True, *rest, **named)


def copy_call(*args, **kwargs) -> Call:
    """Copies of the arguments' tensors, also of those inside lists, tuples and dicts.

    What requires grad is passed as a non-leaf copy of a new leaf: inside a model a segment's input is not a leaf
    either, and the segment may work on it in place.
    """
    leaves: dict[str, torch.Tensor] = {}
    copies: dict[int, torch.Tensor] = {}

    def copy(name: str, path: tuple, value):
        if not isinstance(value, torch.Tensor):
            return value
        if id(value) not in copies:
            tensor = value.detach().clone()
            if value.requires_grad:
                leaves[name + keystr(path)] = tensor.requires_grad_()
                with torch.enable_grad():
                    tensor = tensor.clone()
            copies[id(value)] = tensor
        return copies[id(value)]

    return Call(
        tuple(tree_map_with_path(functools.partial(copy, f"args[{i}]"), value) for i, value in enumerate(args)),
        {k: tree_map_with_path(functools.partial(copy, f"kwargs[{k!r}]"), v) for k, v in kwargs.items()},
        leaves,
    )


def tensors_in(value, _inside: tuple[int, ...] = ()) -> list[torch.Tensor]:
    """Every tensor in a value that is a tensor or made of tuples, lists, dicts and dataclasses."""
    found = []
    for leaf in tree_leaves(value):
        if isinstance(leaf, torch.Tensor):
            found.append(leaf)
        elif dataclasses.is_dataclass(leaf) and not isinstance(leaf, type) and id(leaf) not in _inside:
            members = [getattr(leaf, field.name, None) for field in dataclasses.fields(leaf)]
            found += tensors_in(members, (*_inside, id(leaf)))
    return found
