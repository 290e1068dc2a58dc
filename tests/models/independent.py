"""What checkpointing does to a block, found without any instrument of the lab.

The block and its arguments are copied, the streams of torch, NumPy and Python seeded, one forward and backward run,
plainly and through `torch.utils.checkpoint.checkpoint`. Gradients, buffers and attributes are then compared.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

ROUNDING = 1e-5  # of a gradient's own norm
NOTHING = 1e-7  # of the largest gradient's norm: what is nothing but rounding has no relative error
SEEDS = tuple(range(6))
MOST_RUNS = 8  # of a segment, in one step
IMPLEMENTATIONS = {"reentrant": True, "non-reentrant": False}
_ORDER = ("replayable", "side effect", "loud", "silent")


@dataclass
class Outcome:
    """`gradients` by leaf (None where there is none), `state` by name, of one forward and backward."""

    gradients: dict[str, torch.Tensor | None] = field(default_factory=dict)
    state: dict[str, object] = field(default_factory=dict)
    error: str = ""


@dataclass
class Comparison:
    """`verdict` is "replayable", "side effect", "loud" or "silent"; the rest says where and how far, worst seed."""

    verdict: str = "replayable"
    error: float = 0.0
    missing: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    state: list[str] = field(default_factory=list)
    raised: str = ""
    seed: int = 0  # where this was seen first
    seeds: int = 0  # at how many seeds the verdict was as bad as this
    repeatable: bool = True  # do two plain runs agree?


def tensors_in(value) -> list[torch.Tensor]:
    """In order, through tuples, lists, dicts, dataclasses and objects with attributes."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        return [t for v in value.values() for t in tensors_in(v)]
    if isinstance(value, tuple | list):
        return [t for v in value for t in tensors_in(v)]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return tensors_in(vars(value))
    return []


def loss_of(output) -> torch.Tensor:
    """Each element of each floating output counts, with a weight of its own."""
    weights = torch.Generator().manual_seed(20)
    outputs = [t for t in tensors_in(output) if t.is_floating_point()]
    return sum((t.float() * torch.randn(t.shape, generator=weights)).sum() for t in outputs)


def seeded(seed: int) -> None:
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)


def state_of(module: nn.Module) -> dict[str, object]:
    """Buffers, and attributes that are tensors, numbers, text, or containers of these."""
    found: dict[str, object] = {}
    for prefix, part in module.named_modules():
        for name, value in {**part._buffers, **vars(part)}.items():
            if not name.startswith("_") or isinstance(value, torch.Tensor | int | float):
                if (plain := _plain(value)) is not None:
                    found[f"{prefix}.{name}".lstrip(".")] = plain
    return found


def _plain(value):
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.ndarray):
        return torch.from_numpy(value.copy())
    if isinstance(value, list | tuple | dict) and value:
        members = [_plain(v) for v in (value.values() if isinstance(value, dict) else value)]
        return members if all(m is not None for m in members) else None
    return None


def copies_of(make: Callable[[], tuple]) -> Callable[[], tuple]:
    """A function that gives the block and its arguments as they are at first, again and again."""
    made = make()
    try:
        copy.deepcopy(made)
    except RuntimeError:  # weight_norm by hook leaves a tensor with a history in an attribute
        return make
    return lambda: copy.deepcopy(made)


def run(fresh: Callable[[], tuple], seed: int, use_reentrant: bool | None) -> Outcome:
    """One step on copies; `use_reentrant` None is the plain run."""
    block, args, kwargs = fresh()
    leaves = dict(block.named_parameters())
    leaves |= {f"argument {n}": t for n, t in enumerate(tensors_in((args, kwargs))) if t.requires_grad}
    seeded(seed)
    # A non-leaf, as inside a model; keywords as transformers' own layers pass them on.
    args, kwargs = _non_leaf(args), _non_leaf(kwargs)
    try:
        if use_reentrant is None:
            output = block(*args, **kwargs)
        else:
            segment = bounded(functools.partial(block, **kwargs))
            output = checkpoint(segment, *args, use_reentrant=use_reentrant)
        loss = loss_of(output)
        if loss.requires_grad:
            loss.backward()
    except Exception as error:
        return Outcome(error=f"{type(error).__name__}: {error}")
    gradients = {name: None if t.grad is None else t.grad.detach() for name, t in leaves.items()}
    return Outcome(gradients, state_of(block))


def bounded(segment: Callable) -> Callable:
    """A segment that raises where it is run without end: reentrant's recomputation may start itself again."""
    runs = itertools.count(1)

    def run(*args):
        if next(runs) > MOST_RUNS:
            raise RecursionError("the recomputation never ends")
        return segment(*args)

    return run


def _non_leaf(value):
    if isinstance(value, torch.Tensor):
        return value.clone() if value.requires_grad else value
    if type(value) in (tuple, list):
        return type(value)(_non_leaf(v) for v in value)
    if type(value) is dict:
        return {k: _non_leaf(v) for k, v in value.items()}
    return value


def compared(plain: Outcome, other: Outcome) -> Comparison:
    if other.error:
        return Comparison("loud", raised=other.error)
    found = Comparison()
    largest = max((float(g.norm()) for g in plain.gradients.values() if g is not None), default=0.0)
    for name, gradient in plain.gradients.items():
        theirs = other.gradients[name]
        if (gradient is None) != (theirs is None):
            found.missing.append(name)
        elif gradient is not None:
            gap, norm = float((theirs.double() - gradient.double()).norm()), float(gradient.double().norm())
            if not gap <= max(ROUNDING * norm, NOTHING * largest):
                found.wrong.append(name)
                found.error = max(found.error, gap / norm if norm else float("inf"))
    found.state = differing(plain.state, other.state)
    if found.missing or found.wrong:
        found.verdict = "silent"
    elif found.state:
        found.verdict = "side effect"
    return found


def differing(a: dict, b: dict) -> list[str]:
    return sorted(name for name in a.keys() | b.keys() if not _equal(a.get(name), b.get(name)))


def _equal(a, b) -> bool:
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        return a.shape == b.shape and torch.equal(a.nan_to_num(), b.nan_to_num())
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(_equal, a, b))
    return type(a) is type(b) and a == b


def compare(make: Callable[[], tuple], seeds: tuple[int, ...] = SEEDS) -> dict[str, Comparison]:
    """For each implementation the worst of several seeds. `make()` gives (block, args, kwargs), the same at each call.

    Raises RuntimeError where the plain run fails.
    """
    fresh = copies_of(make)
    plain = {seed: run(fresh, seed, None) for seed in seeds}
    for outcome in plain.values():
        if outcome.error:
            raise RuntimeError(f"the plain run fails: {outcome.error}")
    repeated = all(compared(plain[seed], run(fresh, seed, None)).verdict == "replayable" for seed in seeds)
    found = {}
    for name, use_reentrant in IMPLEMENTATIONS.items():
        each = [compared(plain[seed], run(fresh, seed, use_reentrant)) for seed in seeds]
        found[name] = worst(each, seeds)
        found[name].repeatable = repeated
    return found


def worst(each: list[Comparison], seeds: tuple[int, ...]) -> Comparison:
    """The worst of several comparisons, one for each seed."""
    found = max(each, key=lambda c: (_ORDER.index(c.verdict), len(c.missing), c.error))
    found.seed = seeds[each.index(found)]
    found.seeds = sum(c.verdict == found.verdict for c in each)
    return found
