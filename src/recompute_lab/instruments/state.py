"""The state a segment can reach: copied, compared, put back.

What is reachable is said in `reach`; besides, there is what belongs to the process: its random streams, and torch's
switches (grad mode, threads, determinism, dtype). Of a captured tensor with a history, the values are put back, the
history is not.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection
from dataclasses import dataclass
from types import FunctionType

import torch

from recompute_lab.instruments.reach import (
    ABSENT,
    CONTAINERS,
    SCALARS,
    Holder,
    Reach,
    attributes_of,
    contents,
    tensor_of,
)
from recompute_lab.instruments.streams import process_streams


class Snapshot:
    """A copy of the reachable state. `restore()` puts it back, into the same objects; `changes()` names what differs.

    Attributes: `tensors`, every reachable tensor by name ("blocks.0.up.weight", "args[0]", or that of a variable).
    Raises TypeError where `segment` cannot be called, ValueError where a parameter has no values yet.
    """

    def __init__(self, segment: Callable, *args, **kwargs):
        self._reach = Reach.of(segment, *args, **kwargs)
        self.tensors = self._reach.tensors
        self._holders = [(holder, holder.members()) for holder in self._reach.holders]
        self._containers = [(name, container, _members(container)) for name, container in self._reach.containers]
        self._cells = [(name, cell, contents(cell)) for name, cell in self._reach.cells]
        # `.data` is the same memory under a version counter of its own: writing to it upsets no graph of the caller's.
        self._held = {name: (t.data, t.detach().clone(), t.requires_grad) for name, t in self.tensors.items()}
        self._grads = [(tensor, tensor.grad) for tensor in self._bearers_of_grads()]
        self._streams = [(stream, stream.read()) for stream in process_streams() + self._reach.streams]
        self._switches = _switches()

    def kind(self, name: str) -> str:
        """Of a tensor: "parameter", "buffer", "argument", "NumPy array" or "tensor"."""
        return self._reach.kinds[name]

    def parameters(self) -> dict[str, torch.Tensor]:
        """The leaf tensors that require grad, by name."""
        return {name: t for name, t in self.tensors.items() if t.is_leaf and t.requires_grad}

    def clear_grads(self) -> None:
        """Set every reachable `.grad` to None; `restore()` brings the caller's tensors back."""
        for tensor, _ in self._grads:
            tensor.grad = None

    def restore(self, keep: Collection[str] = ()) -> None:
        """Put everything back: the same objects, holding what they held. What `keep` names, as `changes` does, stays
        as it is.
        """
        for holder, members in self._holders:
            _reassign(holder, members, keep)
        for name, container, members in self._containers:
            if name not in keep:
                _refill(container, members)
        for name, cell, value in self._cells:
            if name in keep:
                continue
            if value is not ABSENT:
                cell.cell_contents = value
            elif contents(cell) is not ABSENT:
                del cell.cell_contents
        for name, tensor in self.tensors.items():
            if name not in keep:
                _put_back(tensor, *self._held[name])
        for tensor, grad in self._grads:
            tensor.grad = grad
        for stream, state in self._streams:
            if stream.name not in keep:
                stream.write(state)
        for name, (position, write) in _switches().items():
            if position != self._switches[name][0] and name not in keep:
                write(self._switches[name][0])

    def changes(self) -> list[str]:
        """Names of what differs from the copy, sorted. Random streams, switches and grads are not listed."""
        return sorted(self.changed_kinds())

    def changed_kinds(self) -> dict[str, str]:
        """What differs from the copy by name, with its kind: "parameter", "buffer", "argument", "tensor", "attribute",
        "class attribute", "global", "variable" (of a closure), or "list", "dict", "set", "deque".
        """
        changed: dict[str, str] = {}
        for name, container, members in self._containers:
            if not _same_members(container, members):
                changed[name] = next(kind.__name__ for kind in CONTAINERS if isinstance(container, kind))
        for holder, members in self._holders:
            now = holder.members()
            for name in now.keys() | members.keys():
                if not _same(now.get(name, ABSENT), members.get(name, ABSENT)):
                    label = holder.label(name)
                    changed[label] = self._reach.kinds.get(label, holder.kind)
        changed |= {name: "variable" for name, cell, value in self._cells if not _same(contents(cell), value)}
        for name, tensor in self.tensors.items():
            if not same_bits(tensor, self._held[name][1]):
                changed[name] = self._reach.kinds[name]
        return changed

    def moved_streams(self) -> list[str]:
        """Names of the random streams that do not stand where they stood."""
        return [stream.name for stream, state in self._streams if not equal_values(stream.read(), state)]

    def moved_switches(self) -> list[str]:
        """Names of torch's switches that stand elsewhere: "grad mode", "threads", "determinism", "default dtype"."""
        return [name for name, (position, _) in _switches().items() if position != self._switches[name][0]]

    def values_now(self, names: Collection[str]) -> dict[str, object]:
        """What the named things hold now (streams and switches too), copied to be compared later; `ABSENT` for what is
        not there.
        """
        now: dict[str, object] = dict(self.tensors)
        for holder, _ in self._holders:
            now.update((holder.label(name), value) for name, value in holder.members().items())
        now.update((name, container) for name, container, _ in self._containers)
        now.update((name, contents(cell)) for name, cell, _ in self._cells)
        now.update((stream.name, stream.read()) for stream, _ in self._streams if stream.name in names)
        now.update((name, position) for name, (position, _) in _switches().items())
        return {name: _copied(now.get(name, ABSENT)) for name in names}

    def values_before(self, names: Collection[str]) -> dict[str, object]:
        """What the named things held when the copy was made."""
        before: dict[str, object] = {name: held for name, (_, held, _) in self._held.items()}
        for holder, members in self._holders:
            before.update((holder.label(n), v) for n, v in members.items() if holder.label(n) not in self.tensors)
        before.update((name, value) for name, _, value in self._cells if name not in self.tensors)
        before.update((name, members) for name, _, members in self._containers)
        before.update((stream.name, state) for stream, state in self._streams)
        before.update((name, position) for name, (position, _) in self._switches.items())
        return {name: _copied(before.get(name, ABSENT)) for name in names}

    def _bearers_of_grads(self) -> list[torch.Tensor]:
        """Where a backward may write: reachable leaves, and those behind a captured tensor with a history."""
        bearers = [t for t in self.tensors.values() if t.is_leaf or t.retains_grad]
        todo, seen = [t.grad_fn for t in self.tensors.values()], set()
        while todo:
            node = todo.pop()
            if node is None or node in seen:
                continue
            seen.add(node)
            if hasattr(node, "variable"):
                bearers.append(node.variable)
            todo += [following for following, _ in node.next_functions]
        return list({id(tensor): tensor for tensor in bearers}.values())


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """True where two tensors agree in shape, dtype and every bit: a NaN equals itself, 0.0 is not -0.0.

    Sparse tensors are compared by what they stand for; on the meta device there are no values to compare.
    """
    if (a.shape, a.dtype, a.layout, a.device) != (b.shape, b.dtype, b.layout, b.device):
        return False
    if a.is_meta:
        return True
    if a.is_quantized:
        return torch.equal(a, b)
    a, b = (t if t.layout is torch.strided else t.to_dense() for t in (a.detach(), b.detach()))
    return torch.equal(*(t.resolve_conj().resolve_neg().reshape(-1).contiguous().view(torch.uint8) for t in (a, b)))


def _put_back(tensor: torch.Tensor, memory: torch.Tensor, value: torch.Tensor, requires_grad: bool) -> None:
    """The tensor's own memory, shape, values and `requires_grad`, whatever was done to it in place."""
    strided = tensor.layout is torch.strided
    if strided and any(getattr(tensor, m)() != getattr(memory, m)() for m in ("data_ptr", "size", "stride")):
        tensor.data = memory
    if not same_bits(memory, value):
        memory.copy_(value)
    if tensor.requires_grad and not requires_grad and not tensor.is_leaf:  # became part of a graph by a write
        (tensor if tensor._base is None else tensor._base).detach_()
    if tensor.is_leaf and tensor.requires_grad != requires_grad:
        tensor.requires_grad_(requires_grad)


def equal_values(a, b) -> bool:
    """Bit for bit, down to the tensors in what `Snapshot.values_now` gives."""
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        return same_bits(a, b)
    if isinstance(a, Copy) and isinstance(b, Copy):
        return equal_values(a.rows, b.rows)
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(map(equal_values, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(equal_values(a[key], b[key]) for key in a)
    if isinstance(a, float) and isinstance(b, float):
        return repr(a) == repr(b)  # a NaN is the same as a NaN
    try:
        same = a == b
        return bool(same.all() if hasattr(same, "all") else same)
    except Exception:  # an object of the user's that does not compare
        return False


def _same(now, before) -> bool:
    if now is before:
        return True
    # repr, since a NaN is the same as a NaN, and 0.0 is not -0.0
    return type(now) is type(before) and isinstance(now, SCALARS) and repr(now) == repr(before)


def _kind(container) -> type:
    """The type whose methods are called: those of a subclass may do anything, and raise."""
    return next(kind for kind in (OrderedDict, *CONTAINERS) if isinstance(container, kind))


def _members(container):
    """A plain container of the same members, in their order."""
    kind = _kind(container)
    return dict(kind.items(container)) if issubclass(kind, dict) else kind(kind.__iter__(container))


def _same_members(container, members) -> bool:
    now = _members(container)
    if len(now) != len(members):
        return False
    if isinstance(now, set):
        return {id(member) for member in now} == {id(member) for member in members} or equal_values(now, members)
    if isinstance(now, dict):  # the order too: a cache may keep its oldest entry first
        return all(map(_same, now, members)) and all(map(_same, now.values(), members.values()))
    return all(map(_same, now, members))


def _refill(container, members) -> None:
    if _same_members(container, members):  # leave it alone: the caller may be iterating over it
        return
    kind = _kind(container)
    kind.clear(container)
    (kind.update if issubclass(kind, dict | set) else kind.extend)(container, members)


def _reassign(holder: Holder, members: dict, keep: Collection[str]) -> None:
    now = holder.members()
    if holder.names is None and isinstance(holder.mapping, dict) and not keep:
        _refill(holder.mapping, members)  # in their old order too
        return
    for name in (now.keys() | members.keys()) - {n for n in now if keep and holder.label(n) in keep}:
        value = members.get(name, ABSENT)
        if _same(now.get(name, ABSENT), value):
            continue
        if value is ABSENT:
            del holder.mapping[name]
        else:
            holder.mapping[name] = value


@dataclass(frozen=True)
class Copy:
    """A container or an object, copied down to the tensors: a later pass would change what a shallow copy holds.

    `rows` has one tuple for each container and object in it, itself first: its type, then a tuple for each entry. What
    has a row of its own stands there as a `_Row`. So neither depth matters, nor how often one thing is met.
    """

    rows: tuple[tuple, ...]

    @property
    def type(self) -> type:
        return self.rows[0][0]

    @property
    def entries(self) -> tuple[tuple, ...]:
        """(member,) of a list, tuple or deque, (name, value) of a dict or an object."""
        return self.rows[0][1:]

    def __len__(self) -> int:
        return len(self.entries)


@dataclass(frozen=True)
class _Row:
    number: int


def _copied(value):
    todo, numbers = [], {}

    def noted(value):
        tensor = value if isinstance(value, torch.Tensor) else tensor_of(value)
        if tensor is not None:
            return tensor.detach().clone()
        if isinstance(value, set):
            return _members(value)
        if _entries(value) is None:
            return value
        # Whether two equal tuples are one object is for Python to say.
        if id(value) not in numbers or isinstance(value, tuple):
            numbers[id(value)] = len(todo)
            todo.append(value)
        return _Row(numbers[id(value)])

    top = noted(value)
    rows = [(type(each), *(tuple(map(noted, entry)) for entry in _entries(each))) for each in todo]
    return Copy(tuple(rows)) if todo else top


def _entries(value) -> list[tuple] | None:
    """The members of a container, the attributes of an object with their names; None for what has neither."""
    if not isinstance(value, (*CONTAINERS, tuple)):
        value = None if isinstance(value, FunctionType) else attributes_of(value)
    if value is None or isinstance(value, set):
        return None
    members = value if isinstance(value, tuple) else _members(value)
    return list(members.items()) if isinstance(members, dict) else [(member,) for member in members]


def _switches() -> dict[str, tuple[object, Callable]]:
    """Where torch's switches stand, and the function that sets each."""
    return {
        "grad mode": (torch.is_grad_enabled(), torch.set_grad_enabled),
        "threads": (torch.get_num_threads(), torch.set_num_threads),
        "determinism": (torch.get_deterministic_debug_mode(), torch.set_deterministic_debug_mode),
        "default dtype": (torch.get_default_dtype(), torch.set_default_dtype),
    }
