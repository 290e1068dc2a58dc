"""The review question: what does this forward do other than return a value?"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

import torch

from recompute_lab.instruments.checkpointing import NON_REENTRANT, PLAIN, REENTRANT, Strategy, released, weighted_sum
from recompute_lab.instruments.isolation import copy_call, isolated, tensors_in
from recompute_lab.instruments.ledger import Recorder
from recompute_lab.instruments.reach import ABSENT, CONTAINERS
from recompute_lab.instruments.state import Copy, Snapshot, equal_values


@dataclass(frozen=True)
class Write:
    """One thing that a forward leaves behind.

    `kind` is "buffer", "parameter", "argument", "tensor", "attribute", "class attribute", "global", "variable" (of a
    closure), "environment variable", "cache" (of functools), "list", "dict", "set", "deque", "NumPy array",
    "requires_grad", "random stream", or "switch" (of torch: grad mode, threads, determinism, default dtype). `told`
    says what became of it. `read` is True where a forward that finds it changed computes another output or other
    gradients. `repeated_by` names the implementations under which it ends up otherwise than in the plain run, as what
    happens twice may.
    """

    kind: str
    name: str
    told: str
    read: bool
    repeated_by: tuple[str, ...] = ()

    @property
    def columns(self) -> tuple[str, str, str, str, str]:
        read = "also read" if self.read else "only written"
        under = "both" if len(self.repeated_by) == 2 else ", ".join(self.repeated_by)
        differs = f"differs under {under}" if under else "as in the plain run"
        return self.kind, self.name, self.told, read, differs


@dataclass
class Writes:
    """All that a forward leaves behind, in the order of their names; `str` gives a table of it ("both": reentrant and
    non-reentrant).

    `refused` holds, by implementation, the error with which it could not run the segment at all.
    """

    found: list[Write] = field(default_factory=list)
    refused: dict[str, Exception] = field(default_factory=dict)

    @property
    def names(self) -> set[str]:
        return {write.name for write in self.found}

    def __iter__(self):
        return iter(self.found)

    def __len__(self) -> int:
        return len(self.found)

    def __str__(self) -> str:
        rows = [write.columns for write in self.found]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows] or ["nothing but its value"]
        return "\n".join(lines + [f"{name}: raised {type(e).__name__}" for name, e in self.refused.items()])


def writes(segment: Callable, *args, **kwargs) -> Writes:
    """Run `segment` plainly and list what it changed that it can reach, and the random streams it drew from.

    Then it runs again, forward and backward, once for each write with that one write left standing: so it is found what
    is also read. Last, both implementations run it once. All state is afterwards as it was. Raises TypeError for what
    is no segment; what the plain run raises passes through. An output that needs no gradient is not differentiated.
    """
    plain = _run(PLAIN, segment, args, kwargs)
    result, others = Writes(), {}
    for strategy in (REENTRANT, NON_REENTRANT) if plain.differentiable else ():
        try:
            others[strategy.name] = _run(strategy, segment, args, kwargs, plain.kinds)
        except Exception as error:
            result.refused[strategy.name] = released(error)
    for name, kind in sorted(plain.kinds.items(), key=lambda item: item[0].casefold()):
        repeated = [s for s, run in others.items() if not equal_values(run.after.get(name), plain.after.get(name))]
        told = _told(plain.before[name], plain.after[name])
        if kind == "random stream":
            told = "drawn from"
        result.found.append(Write(kind, name, told, _is_read(segment, args, kwargs, name, plain), tuple(repeated)))
    return result


@dataclass
class _Run:
    output: list[torch.Tensor]
    grads: dict[str, torch.Tensor]
    saved: list[tuple]
    kinds: dict[str, str]
    before: dict[str, object]
    after: dict[str, object]
    differentiable: bool


def _run(strategy: Strategy, segment: Callable, args: tuple, kwargs: dict, also: Collection[str] = ()) -> _Run:
    """One forward and backward from the state as it is; `also` names what to look at besides what changes."""
    with isolated(segment, *args, **kwargs) as call:
        here = Snapshot(segment, *call.args, **call.kwargs)
        with warnings.catch_warnings(action="ignore"):  # reentrant warns of inputs that need no gradient
            output = strategy(recorder := Recorder(segment), *call.args, **call.kwargs)
        grads, differentiable = _differentiated(output, {**here.parameters(), **call.leaves})
        kinds = here.changed_kinds() | {name: "random stream" for name in here.moved_streams()}
        kinds |= {name: "switch" for name in here.moved_switches()}
        names = kinds.keys() | set(also)
        tensors = [t.detach().clone() for t in tensors_in(output)]
        return _Run(
            tensors, grads, _saved(recorder), kinds, here.values_before(names), here.values_now(names), differentiable
        )


def _differentiated(output, leaves: dict[str, torch.Tensor]) -> tuple[dict[str, torch.Tensor], bool]:
    differentiable = torch.is_grad_enabled() and any(t.requires_grad for t in tensors_in(output))
    if differentiable:
        weighted_sum(output).backward()
    return {n: leaf.grad.detach().clone() for n, leaf in leaves.items() if leaf.grad is not None}, differentiable


def _is_read(segment: Callable, args: tuple, kwargs: dict, name: str, plain: _Run) -> bool:
    """Does a run come out otherwise that finds this one thing as the run before it left it?"""
    with isolated(segment, *args, **kwargs) as call:
        here = Snapshot(segment, *call.args, **call.kwargs)
        segment(*call.args, **call.kwargs)
        here.restore(keep={name})
        if name not in here.tensors or here.kind(name) != "argument":
            call = copy_call(*args, **kwargs)  # what was done to an argument in place is part of its history
        leaves = {**here.parameters(), **call.leaves}
        here.clear_grads()
        for leaf in call.leaves.values():
            leaf.grad = None
        recorder = Recorder(segment)
        try:
            output = recorder(*call.args, **call.kwargs)
            grads, _ = _differentiated(output, leaves)
        except Exception:
            return True
        return not (
            equal_values([t.detach() for t in tensors_in(output)], plain.output)
            and _saved(recorder) == plain.saved
            and equal_values(grads, plain.grads)
        )


def _saved(recorder: Recorder) -> list[tuple]:
    """Operator and shape of each saved tensor of the first pass."""
    return [(row.operator, row.shape) for row in recorder.passes[0]]


def _told(before, after) -> str:
    if before is ABSENT or after is ABSENT:
        return "new" if before is ABSENT else "gone"
    if isinstance(after, torch.Tensor) and isinstance(before, torch.Tensor):
        if after.shape == before.shape and after.numel() == 1:
            return f"{_number(before.item())} → {_number(after.item())}"
        shapes = f"{list(before.shape)} → {list(after.shape)}" if after.shape != before.shape else list(after.shape)
        return f"{shapes} changed"
    if isinstance(after, set) and isinstance(before, set) or _one_container(before, after):
        return f"{len(before)} → {len(after)} entries"
    return f"{_short(before)} → {_short(after)}"


def _one_container(before, after) -> bool:
    """Containers of the same type; of a user's own type, `Snapshot` holds the members in a plain one."""
    if not (isinstance(before, Copy) and isinstance(after, Copy)):
        return False
    return issubclass(after.type, (*CONTAINERS, tuple)) and issubclass(after.type, before.type)


def _number(value) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _short(value) -> str:
    if isinstance(value, torch.Tensor):
        return f"a tensor {list(value.shape)}"
    if isinstance(value, Copy):
        return f"a {value.type.__name__}"
    if isinstance(value, float):
        return _number(value)
    text = repr(value) if isinstance(value, str | int | bool | type(None)) else f"a {type(value).__name__}"
    return text if len(text) <= 16 else text[:13] + "..."
