"""What only the reentrant implementation would get wrong, seen from a run that does not use it.

It runs the forward without recording, and joins the graph as one operator of its top-level tensor arguments; in
backward it runs again and calls `backward` within backward.
"""

from __future__ import annotations

import math
import weakref
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from types import CodeType, FrameType

import torch

from recompute_lab.instruments.digest import digest_of
from recompute_lab.instruments.isolation import tensors_in
from recompute_lab.instruments.state import Snapshot
from recompute_lab.instruments.witness.report import Cause

_ONLY = ("reentrant",)
_MOST_NODES = 20_000
DEVICE_CONTEXT = "device context (torch.device) around the forward only"
_ASKING = frozenset(("is_grad_enabled", "requires_grad", "grad_fn", "register_hook", "retain_grad"))


@dataclass
class Hints:
    """What was seen of one call that the reentrant implementation would trip over."""

    frozen_input: bool = False
    hidden_in_containers: list[str] = field(default_factory=list)
    captured: list[str] = field(default_factory=list)
    hooked: list[str] = field(default_factory=list)
    returned: list[str] = field(default_factory=list)
    device_context: str = ""  # the type of device that `with torch.device(...)` around the forward gives new tensors
    device_lost: bool = False  # in the recomputation, too: older versions of torch do not enter it again
    outputs_without_grad: int = 0
    outputs_with_grad: int = 0
    nested_outputs: int = 0
    overwritten: set[str] = field(default_factory=set)  # of those in `on_ctx`, before the recomputation or after it
    on_ctx: dict[str, tuple] = field(default_factory=dict)  # a reference to the tensor, and its digest
    grad_api: str = ""
    unrecorded: str = ""  # what comes of a forward under no_grad, where its code asks
    other_thread: bool = False


class Shared:
    """Which captured tensors and hooked parameters several calls had in common."""

    def __init__(self):
        self._seen: dict[int, tuple[weakref.ref, int]] = {}

    def count(self, tensor: torch.Tensor) -> int:
        """How many calls have had this tensor, this one included."""
        reference, calls = self._seen.get(id(tensor), (None, 0))
        calls = calls + 1 if reference is not None and reference() is tensor else 1
        self._seen[id(tensor)] = weakref.ref(tensor), calls
        return calls


def at_entry(state: Snapshot, args: tuple, kwargs: dict, device_context: str, shared: Shared) -> Hints:
    hints = Hints(device_context=device_context)
    top = [a for a in args if isinstance(a, torch.Tensor)]
    arguments = {id(t) for t in tensors_in((args, kwargs))}
    if torch.is_grad_enabled() and not any(t.requires_grad for t in top):
        hints.frozen_input = bool(state.parameters())
        nested = [f"args[{i}]" for i, a in enumerate(args) if not isinstance(a, torch.Tensor) and _wants_grad(a)]
        nested += [f"{key}=" for key, value in kwargs.items() if _wants_grad(value)]
        # functools.partial is how keywords reach the reentrant implementation, which takes none.
        bound = [n for n, t in state.tensors.items() if t.requires_grad and n.startswith("keywords[") and n[-1] == "]"]
        hints.hidden_in_containers = nested + bound
    for name, tensor in state.tensors.items():
        if id(tensor) in arguments:
            continue
        if tensor.requires_grad and not tensor.is_leaf and shared.count(tensor) > 1:
            hints.captured.append(name)
        elif tensor.is_leaf and _has_grad_hooks(tensor) and shared.count(tensor) > 1:
            hints.hooked.append(name)
    return hints


def at_exit(hints: Hints, output, args: tuple, state: Snapshot, stops_gradients: bool) -> None:
    tensors = [t for t in tensors_in(output) if t.is_floating_point() or t.is_complex()]
    hints.outputs_with_grad = sum(t.requires_grad for t in tensors)
    if stops_gradients or not hints.outputs_with_grad:  # else nothing could have flown there anyway
        hints.outputs_without_grad = len(tensors) - hints.outputs_with_grad
    top = output if isinstance(output, tuple) else (output,)
    shown = {id(t) for t in top if isinstance(t, torch.Tensor)}
    hints.nested_outputs = sum(t.requires_grad and id(t) not in shown for t in tensors)
    given = {id(a) for a in args}
    hints.returned = [
        name
        for name, t in state.tensors.items()
        if t.requires_grad and not t.is_leaf and id(t) in shown and id(t) not in given
    ]
    hints.on_ctx = _tensors_on_ctx(tensors, [a.grad_fn for a in tensors_in(args) if a.grad_fn is not None])


def asks_for_recording(state: Snapshot) -> bool:
    """May code that the segment can reach do otherwise where no gradients are recorded?"""
    return any(_asks(function.__code__) for function in state.functions)


def _asks(code: CodeType) -> bool:
    inner = [const for const in code.co_consts if isinstance(const, CodeType)]
    return not _ASKING.isdisjoint(code.co_names) or any(map(_asks, inner))


def at_recomputation(hints: Hints, frame: FrameType | None) -> list[torch.Tensor]:
    """Was this backward asked for by `autograd.grad`, or for some inputs only? Returns the tensors that it began from;
    none where that cannot be told, as in the threads in which the engine serves a GPU.
    """
    roots: list[torch.Tensor] = []
    while frame is not None:
        if frame.f_code.co_filename == torch.autograd.__file__:
            if frame.f_code.co_name == "grad":
                hints.grad_api = "torch.autograd.grad"
            elif frame.f_code.co_name == "backward" and frame.f_locals.get("inputs"):
                hints.grad_api = "backward(inputs=...)"
            roots = roots or tensors_in(frame.f_locals.get("tensors") or frame.f_locals.get("outputs"))
        frame = frame.f_back
    return roots


def uses(tensors: list[torch.Tensor], outputs: list[torch.Tensor], inner: bool = False) -> list[float]:
    """How often each of the tensors is used on the way to the outputs, and as one of them; infinite where the graph is
    too large to be looked through.

    With `inner`, also where it is an output itself: whatever becomes of that is no use of what was kept.
    """
    nodes = nodes_behind(outputs)
    if len(nodes) >= _MOST_NODES:
        return [math.inf] * len(tensors)
    counts = Counter((t.grad_fn, t.output_nr) for t in outputs)
    if inner:
        counts = Counter(dict.fromkeys(counts, math.inf))
    edges = [(t.grad_fn, t.output_nr) for t in tensors]
    wanted = set(edges)
    for node in nodes:
        for edge in node.next_functions:
            if edge in wanted:
                counts[edge] += 1
    return [counts[edge] for edge in edges]


def causes(hints: Hints) -> list[tuple[str, Cause]]:
    """(verdict, cause) for each: what would come of it."""
    found: list[tuple[str, Cause]] = []

    def add(verdict: str, name: str, told: str, repair: str) -> None:
        found.append((verdict, Cause(name, "", False, told, repair, "reentrant", _ONLY)))

    if hints.hidden_in_containers:
        add(
            "silent",
            f"tensors in a container ({', '.join(hints.hidden_in_containers)})",
            "reentrant looks at top-level tensor arguments only: tensors nested in a list, dict or keyword get no "
            "gradient, nor do the parameters.",
            "pass these tensors as arguments of their own, or use_reentrant=False.",
        )
    elif hints.frozen_input:
        add(
            "silent",
            "frozen input: no argument has requires_grad=True",
            "reentrant joins the graph by its arguments: none requires grad, so no parameter gets a gradient.",
            "use_reentrant=False, or x.requires_grad_() on the input.",
        )
    if hints.outputs_without_grad and not hints.frozen_input:
        none = not hints.outputs_with_grad
        add(
            "loud" if none else "silent",
            "no output requires grad (detach, no_grad)" if none else "one output is detached, one is not",
            "reentrant raises in backward: none of the recomputed outputs has requires_grad=True."
            if none
            else "reentrant marks every floating output as requiring grad: a stop-gradient becomes invisible.",
            "use_reentrant=False, or compute what is detached outside the segment.",
        )
    if hints.nested_outputs:
        add(
            "silent",
            f"nested outputs: {hints.nested_outputs} tensors inside a container",
            "reentrant connects top-level outputs only: those nested in a list, dict or tuple come out detached.",
            "return the tensors in one flat tuple, or use_reentrant=False.",
        )
    if hints.captured:
        add(
            "loud",
            f"captured tensor with a graph: {', '.join(hints.captured[:3])}",
            "several segments captured it (closure, not argument): the first inner backward frees its graph, and the "
            "next raises 'backward through the graph a second time'.",
            "pass it to the segment as an argument, or use_reentrant=False.",
        )
    if hints.returned:
        add(
            "loud",
            f"captured tensor returned: {', '.join(hints.returned[:3])}",
            "what a segment returns, reentrant makes part of its own graph. A captured tensor then leads back to the "
            "segment: its recomputation starts itself again, without end.",
            "pass it to the segment as an argument, or use_reentrant=False.",
        )
    if hints.hooked:
        add(
            "silent",
            f"gradient hook on {', '.join(hints.hooked[:3])} fires once per segment",
            "the parameter is used in several checkpointed calls: reentrant ends an inner backward in each, so a hook "
            "that takes its gradient for complete sees parts of it.",
            "use_reentrant=False, or act on the gradient after backward.",
        )
    if hints.unrecorded == "other":
        add(
            "silent",
            "grad mode (no_grad) decides what is computed",
            "the forward gives another output where no gradients are recorded, as in reentrant's.",
            "use_reentrant=False, or let nothing that is computed depend on torch.is_grad_enabled().",
        )
    elif hints.unrecorded:
        add(
            "loud",
            f"without recording: {hints.unrecorded}",
            "reentrant runs the forward without recording gradients (no_grad), and there it raises.",
            "use_reentrant=False, or ask for requires_grad first.",
        )
    if hints.grad_api:
        add(
            "loud",
            f"gradients through {hints.grad_api} (autograd.grad, inputs=)",
            "reentrant calls backward within backward, which cannot be limited to some inputs: it raises.",
            "use_reentrant=False, or a plain backward().",
        )
    if hints.device_context:
        add(
            "silent",
            DEVICE_CONTEXT,
            "reentrant does not enter it again: in its recomputation tensors are made on the default device.",
            "use_reentrant=False, or give device= where tensors are made.",
        )
    return found


def _wants_grad(value) -> bool:
    return any(t.requires_grad for t in tensors_in(value))


def _has_grad_hooks(tensor: torch.Tensor) -> bool:
    return bool(tensor._backward_hooks) or bool(getattr(tensor, "_post_accumulate_grad_hooks", None))


def look_at_ctx(hints: Hints) -> None:
    """Note which tensors on a ctx hold other values than at the end of the forward: backward reads them as they are."""
    for name, (reference, before) in hints.on_ctx.items():
        tensor = reference()
        digest = None if tensor is None else digest_of(tensor)
        if digest is not None and not torch.equal(digest.nan_to_num(), before.nan_to_num()):
            hints.overwritten.add(name)


def _tensors_on_ctx(outputs: list[torch.Tensor], stop: Collection[Callable]) -> dict[str, tuple]:
    """Custom functions in the graph that keep a tensor as a plain attribute of their context."""
    found: dict[str, tuple] = {}
    for node in nodes_behind(outputs, stop):
        if isinstance(node, torch.autograd.function.BackwardCFunction):
            name = type(node).__name__.removesuffix("Backward")
            for attribute, value in vars(node).items():
                if isinstance(value, torch.Tensor):
                    found[f"{name}: ctx.{attribute}"] = weakref.ref(value), digest_of(value)
    return found


def nodes_behind(outputs: list[torch.Tensor], stop: Collection[Callable] = ()) -> set[Callable]:
    """The nodes of the graph that the outputs have come from, not beyond those in `stop`."""
    todo = [t.grad_fn for t in outputs if t.grad_fn is not None]
    nodes, stop = set(), set(stop)
    while todo and len(nodes) < _MOST_NODES:
        node = todo.pop()
        if node not in nodes and node not in stop:
            nodes.add(node)  # the node, not its id: that would be given to another one as soon as nobody holds it
            todo += [following for following, _ in node.next_functions if following is not None]
    return nodes
