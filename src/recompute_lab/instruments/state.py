"""The state a segment can reach: copied, compared, put back.

What is reachable is said in `reach`; besides, there is what belongs to the process: its random streams, and torch's
switches (grad mode, threads, determinism, dtype, autocast, attention kernels). Of a captured tensor with a history, the
values are put back, the history is not.
"""

from __future__ import annotations

import contextvars
import functools
import math
import weakref
from collections.abc import Callable, Collection
from dataclasses import dataclass
from operator import is_
from types import FunctionType

import torch
from torch.nn.parameter import Parameter, UninitializedBuffer, UninitializedParameter, is_lazy
from torch.utils._pytree import tree_leaves

from recompute_lab.instruments.digest import digest_of
from recompute_lab.instruments.interrupts import uninterrupted
from recompute_lab.instruments.reach import (
    ABSENT,
    CONTAINERS,
    PYTHONS_OWN,
    SCALARS,
    Holder,
    Reach,
    Slots,
    attributes_of,
    contents,
    fill,
    join,
    members_of,
    tensor_of,
)
from recompute_lab.instruments.streams import Stream, process_streams


class Snapshot:
    """A copy of the reachable state. `restore()` puts it back, into the same objects; `changes()` names what differs.

    Attributes: `tensors`, every reachable tensor by name ("blocks.0.up.weight", "args[0]", or that of a variable).
    Raises TypeError where `segment` cannot be called, ValueError where a parameter has no values yet.
    """

    def __init__(self, segment: Callable, *args, **kwargs):
        self._take(segment, args, kwargs, math.inf)
        for name, _ in self._reach.lazy:
            raise ValueError(f"{name} has no values yet: call the module once, so that its lazy parameters get a shape")

    @classmethod
    def within(cls, most_bytes: float, segment: Callable, args: tuple, kwargs: dict) -> Snapshot:
        """A snapshot that copies at most so many bytes of tensors, the small ones first.

        Of the others (`digested` names them) it keeps a digest: it can tell that they changed, not put them back.
        Lazy parameters may have no values yet: `restore` takes away those that they have got since.
        """
        snapshot = cls.__new__(cls)
        snapshot._take(segment, args, kwargs, most_bytes)
        return snapshot

    def _take(self, segment: Callable, args: tuple, kwargs: dict, most_bytes: float) -> None:
        self._reach = Reach.of(segment, *args, **kwargs)
        self.tensors = self._reach.tensors
        self._holders = [(holder, holder.members()) for holder in self._reach.holders]
        # To remove a parametrization, or to fill a lazy layer, gives a module another class.
        self._classes = [(join(name, "__class__"), module, type(module)) for name, module in self._reach.modules]
        # A model has hundreds of empty dicts, for hooks: they are looked at all at once.
        self._empty = [c for _, c in self._reach.containers if not c and type(c) in PYTHONS_OWN]
        self._containers = [
            (name, c, () if not c and type(c) in PYTHONS_OWN else members_of(c)) for name, c in self._reach.containers
        ]
        self._others = [(name, c, members) for name, c, members in self._containers if members != ()]
        self._cells = [(name, cell, contents(cell)) for name, cell in self._reach.cells]
        self._caches = [(name, cache, cache.cache_info()) for name, cache in self._reach.caches]
        self.digested: set[str] = set()
        for name, tensor in sorted(self.tensors.items(), key=lambda item: item[1].numel() * item[1].element_size()):
            most_bytes -= tensor.numel() * tensor.element_size()
            if most_bytes < 0:
                self.digested.add(name)
        self._held = {name: _Held.of(t, name not in self.digested) for name, t in self.tensors.items()}
        self._grads = [(tensor, tensor.grad) for tensor in self._bearers_of_grads()]
        self._streams = [(stream, stream.read()) for stream in process_streams() + self._reach.streams]
        self._switches = _switches()
        self._context = {variable: variable.get(ABSENT) for variable in self._reach.context_variables}

    @property
    def functions(self) -> list[FunctionType]:
        """Those whose code was searched."""
        return self._reach.functions

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

    def restore(self, keep: Collection[str] = (), aside: bool = False) -> None:
        """Put everything back: the same objects, holding what they held. What `keep` names, as `changes` does, stays
        as it is.

        What a cache (`functools.lru_cache`) held cannot be put back: one that was empty is emptied. With `aside`,
        empty ones take the place of those that were filled since, which keep what they hold for a later `restore`.
        An interrupt waits until all of it is done.
        """
        with uninterrupted():
            self._restore(keep, aside)

    def _restore(self, keep: Collection[str], aside: bool) -> None:
        for name, module, own in self._classes:
            if type(module) is not own and name not in keep:
                module.__class__ = own
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
        for name, cache, info in self._caches:
            if name not in keep and _filled(cache.cache_info(), info):
                if aside:
                    self._put_aside(cache)
                elif not info.currsize:  # else it stays as it is: what it holds cannot be put in
                    cache.cache_clear()
        for name, tensor in self._reach.lazy:
            if name not in keep and not is_lazy(tensor):
                tensor.data = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
                tensor.__class__ = _LAZY[isinstance(tensor, Parameter)]
        for name, tensor in self.tensors.items():
            if name not in keep:
                self._held[name].put_back(tensor)
            if _flag(name) not in keep:
                self._held[name].put_flag_back(tensor)
        for tensor, grad in self._grads:
            tensor.grad = grad
        for stream, state in self._streams:
            if stream.name not in keep:
                stream.write(state)
        for name, (position, write) in _switches().items():
            if position != self._switches[name][0] and name not in keep:
                write(self._switches[name][0])
        for variable in self._moved_variables():
            if variable.name not in keep and self._context[variable] is not ABSENT:
                variable.set(self._context[variable])

    def _put_aside(self, cache) -> None:
        empty = functools.lru_cache(**cache.cache_parameters())(cache.__wrapped__)
        for holder, members in self._holders:
            for name, value in members.items():
                if value is cache:
                    holder.mapping[name] = empty
                elif isinstance(value, staticmethod | classmethod) and value.__func__ is cache:
                    holder.mapping[name] = type(value)(empty)
        for _, cell, value in self._cells:
            if value is cache:
                cell.cell_contents = empty

    def changes(self) -> list[str]:
        """Names of what differs from the copy, sorted. Random streams, switches and grads are not listed."""
        return sorted(self.changed_kinds())

    def changed_kinds(self, believed: Callable[[str], bool] | None = None) -> dict[str, str]:
        """What differs from the copy by name, with its kind: "parameter", "buffer", "argument", "tensor", "attribute",
        "class attribute", "global", "environment variable", "variable" (of a closure), "requires_grad", "cache" (of
        functools), "weak container", "lazy" (a layer that has got its values), or "list", "dict", "set", "deque". Of a
        parameter whose name is `believed` only the version counter is looked at, which writes through `.data` pass by.
        """
        changed = {name: "attribute" for name, module, own in self._classes if type(module) is not own}
        for name, container, members in self._containers if any(self._empty) else self._others:
            if not _same_members(container, members):
                kind = next(kind.__name__ for kind in CONTAINERS if isinstance(container, kind))
                changed[name] = self._reach.kinds.get(name, kind)
        for holder, members in self._holders:
            now = holder.members()
            if now.keys() == members.keys() and all(map(is_, now.values(), members.values())):
                continue
            for name in dict.fromkeys((*members, *now)):  # in an order that is the same in every process
                if not _same(now.get(name, ABSENT), members.get(name, ABSENT)):
                    label = holder.label(name)
                    changed[label] = self._reach.kinds.get(label, holder.kind)
        changed |= {name: "variable" for name, cell, value in self._cells if not _same(contents(cell), value)}
        changed |= {name: "cache" for name, cache, info in self._caches if _filled(cache.cache_info(), info)}
        for name, tensor in self.tensors.items():
            held = self._held[name]
            if not (believed and believed(name) and held.untouched(tensor)) and not held.same(tensor):
                changed[name] = self._reach.kinds[name]
            if tensor.requires_grad != held.requires_grad and tensor.is_leaf:
                changed[_flag(name)] = "requires_grad"
        return self._made(changed) if self._reach.lazy else changed

    def _made(self, changed: dict[str, str]) -> dict[str, str]:
        """With all that is another of a module whose lazy parameters have got their values since."""
        made = [name for name, tensor in self._reach.lazy if not is_lazy(tensor)]
        owners = {_owner(name) for name in made}
        return {n: "lazy" if _owner(n) in owners else kind for n, kind in changed.items()} | dict.fromkeys(made, "lazy")

    def moved_streams(self) -> list[str]:
        """Names of the random streams that do not stand where they stood."""
        return [stream.name for stream, state in self._streams if not _same_state(stream.read(), state)]

    def set_switch(self, name: str, position) -> None:
        """Where `restore` puts the switch of that name."""
        self._switches[name] = (position, self._switches[name][1])

    def moved_context(self) -> list[str]:
        """Names of the context variables (`contextvars`) that stand for something else, or for nothing any more."""
        return [variable.name for variable in self._moved_variables()]

    def unset_context(self) -> set[str]:
        """Names of the context variables that stood for nothing: what has been set since cannot be unset."""
        return {variable.name for variable, value in self._context.items() if value is ABSENT}

    def _moved_variables(self) -> list[contextvars.ContextVar]:
        return [v for v, value in self._context.items() if not _same(v.get(ABSENT), value)]

    def moved_switches(self) -> list[str]:
        """Names of torch's switches that stand elsewhere: "grad mode", "threads", "determinism", "default dtype",
        "choice of attention kernels", "autocast" (per kind of device).
        """
        return [name for name, (position, _) in _switches().items() if position != self._switches[name][0]]

    def values_now(self, names: Collection[str]) -> dict[str, object]:
        """What the named things hold now (streams and switches too), copied to be compared later; `ABSENT` for what is
        not there.
        """
        now: dict[str, object] = dict(self.tensors)
        for holder, _ in self._holders:
            now.update((holder.label(name), value) for name, value in holder.members().items())
        now.update((name, type(module)) for name, module, _ in self._classes)
        now.update((name, container) for name, container, _ in self._containers)
        now.update((name, contents(cell)) for name, cell, _ in self._cells)
        now.update((name, cache.cache_info().currsize) for name, cache, _ in self._caches)
        now.update((stream.name, stream.read()) for stream, _ in self._streams if stream.name in names)
        now.update((name, position) for name, (position, _) in _switches().items())
        return {name: _copied(now.get(name, ABSENT)) for name in names}

    def values_before(self, names: Collection[str]) -> dict[str, object]:
        """What the named things held when the copy was made."""
        before: dict[str, object] = {name: held.copy for name, held in self._held.items()}
        for holder, members in self._holders:
            before.update((holder.label(n), v) for n, v in members.items() if holder.label(n) not in self.tensors)
        before.update((name, value) for name, _, value in self._cells if name not in self.tensors)
        before.update((name, own) for name, _, own in self._classes)
        before.update((name, members) for name, _, members in self._containers)
        before.update((name, info.currsize) for name, _, info in self._caches)
        before.update((stream.name, state) for stream, state in self._streams)
        before.update((name, position) for name, (position, _) in self._switches.items())
        empty = {
            name: set() if isinstance(container, set) else Copy(((type(container),),))
            for name, container, members in self._containers
            if not members
        }
        return {n: empty[n] if n in empty else _copied(before.get(n, ABSENT)) for n in names}

    def fingerprints(self, names: Collection[str]) -> dict[str, Callable[[], object]]:
        """For each name a function that gives something cheap to compare: another value once the thing has changed."""
        looks: dict[str, Callable[[], object]] = {}
        for name, tensor in self.tensors.items():
            if name in names:
                looks[name] = functools.partial(_fingerprint, tensor)
        looks |= {name: functools.partial(is_lazy, tensor) for name, tensor in self._reach.lazy if name in names}
        for holder, members in self._holders:
            for name in members.keys() | {n for n in holder.members()}:
                label, binding = holder.label(name), functools.partial(_binding, holder.mapping, name)
                if label in names:  # a tensor is written in place, or another one takes its name
                    looks[label] = functools.partial(_each, looks[label], binding) if label in looks else binding
        for name, module, _ in self._classes:
            if name in names:
                looks[name] = functools.partial(type, module)
        for name, container, _ in self._containers:
            if name in names:
                looks[name] = functools.partial(_members, container)
        for name, cell, _ in self._cells:
            if name in names and name not in looks:
                looks[name] = functools.partial(lambda cell: id(contents(cell)), cell)
        for name, cache, _ in self._caches:
            if name in names:
                looks[name] = functools.partial(lambda cache: cache.cache_info().misses, cache)
        for stream, _ in self._streams:
            if stream.name in names:
                looks[stream.name] = functools.partial(_position, stream)
        return looks

    def holding_graphs(self, names: Collection[str]) -> dict[str, list[torch.Tensor]]:
        """Which of the named containers, attributes and variables hold tensors with a history, and these."""
        now = {holder.label(n): v for holder, _ in self._holders for n, v in holder.members().items()}
        now |= {name: container for name, container, _ in self._containers}
        now |= {name: contents(cell) for name, cell, _ in self._cells}
        held = {name: [t for t in tree_leaves(now.get(name)) if _has_history(t)] for name in names}
        return {name: tensors for name, tensors in held.items() if tensors}

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


_LAZY = UninitializedBuffer, UninitializedParameter
_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


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
    a, b = a.detach(), b.detach()
    if a.layout is torch.strided and a.is_contiguous() and b.is_contiguous() and not (a.is_complex() or a.is_neg()):
        integers = _INTEGERS.get(a.element_size())
        if integers is not None:  # most tensors, and the short way
            return torch.equal(a.view(integers), b.view(integers))
    a, b = (t if t.layout is torch.strided else t.to_dense() for t in (a, b))
    return torch.equal(*(t.resolve_conj().resolve_neg().reshape(-1).contiguous().view(torch.uint8) for t in (a, b)))


@dataclass(slots=True, eq=False)
class _Held:
    """What a tensor was: its memory, a copy of its values, or their digest alone, and its flag.

    `memory` is `.data`, the same memory under a version counter of its own: writing to it upsets no graph.
    """

    memory: torch.Tensor
    copy: torch.Tensor | None
    digest: torch.Tensor | None
    version: int
    requires_grad: bool
    kind: type

    @classmethod
    def of(cls, tensor: torch.Tensor, copied: bool) -> _Held:
        copy, digest = (tensor.detach().clone(), None) if copied else (None, digest_of(tensor))
        return cls(tensor.data, copy, digest, _version(tensor), tensor.requires_grad, type(tensor))

    def same(self, tensor: torch.Tensor) -> bool:
        if self.copy is not None:
            return same_bits(tensor, self.copy)
        if tensor.shape != self.memory.shape or tensor.dtype != self.memory.dtype:
            return False
        if self.digest is None:
            return _version(tensor) == self.version
        digest = digest_of(tensor)
        return digest is not None and same_bits(digest, self.digest)

    def untouched(self, tensor: torch.Tensor) -> bool:
        """A leaf that requires grad, of which autograd has seen no write."""
        if not (self.requires_grad and tensor.is_leaf and tensor.layout is torch.strided):
            return False
        return _version(tensor) == self.version and tensor.data_ptr() == self.memory.data_ptr()

    def put_back(self, tensor: torch.Tensor) -> None:
        """The tensor's own memory, shape and values, whatever was done to it in place."""
        if is_lazy(tensor):  # it has been put back to where it had no values
            tensor.__class__ = self.kind
        memory, strided = self.memory, tensor.layout is torch.strided
        if strided and any(getattr(tensor, m)() != getattr(memory, m)() for m in ("data_ptr", "size", "stride")):
            tensor.data = memory
        if self.copy is not None and not same_bits(memory, self.copy):
            memory.copy_(self.copy)
        if tensor.requires_grad and not self.requires_grad and not tensor.is_leaf:  # became part of a graph by a write
            (tensor if tensor._base is None else tensor._base).detach_()

    def put_flag_back(self, tensor: torch.Tensor) -> None:
        if tensor.is_leaf and tensor.requires_grad != self.requires_grad:
            tensor.requires_grad_(self.requires_grad)


def _has_history(value) -> bool:
    return isinstance(value, torch.Tensor) and value.grad_fn is not None


def _owner(name: str) -> str:
    return name.rpartition(".")[0]


def _flag(name: str) -> str:
    return f"{name}.requires_grad"


def _version(tensor: torch.Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version


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


def _fingerprint(tensor: torch.Tensor):
    return (tensor.data_ptr(), _version(tensor), None if (d := digest_of(tensor)) is None else float(d))


def _each(*looks: Callable[[], object]) -> tuple:
    return tuple(look() for look in looks)


def _binding(mapping, name: str):
    if hasattr(mapping, "get"):
        value = mapping.get(name, ABSENT)
    else:  # a scripted module's
        value = mapping[name] if name in mapping else ABSENT
    return repr(value) if isinstance(value, SCALARS) else (id(value), len(value) if isinstance(value, list) else 0)


def _same_state(now, before) -> bool:
    try:
        if type(now) is tuple and now == before:  # Python's: 625 numbers, compared at once
            return True
    except Exception:  # NumPy's holds an array, whose comparison is none
        pass
    return equal_values(now, before)


def _position(stream: Stream):
    state = stream.read()
    if isinstance(state, list) and all(isinstance(each, torch.Tensor) for each in state):  # one for each GPU
        return [each.numpy().tobytes() for each in state]
    return state.numpy().tobytes() if isinstance(state, torch.Tensor) else repr(state)


def _members(container):
    held = members_of(container)
    return [id(member) for member in (held.values() if isinstance(held, dict) else held)]


def _same(now, before) -> bool:
    if now is before:
        return True
    if type(now) is not type(before) or type(now) not in SCALARS:
        return False
    # repr, since a NaN is the same as a NaN, and 0.0 is not -0.0
    return repr(now) == repr(before) if isinstance(now, float | complex) else now == before


def _filled(now, before) -> bool:
    """Has a cache been given something to hold? Hits change nothing."""
    return bool(now.maxsize != 0 and (now.currsize, now.misses) != (before.currsize, before.misses))


def _is_empty(container) -> bool:
    return not container if type(container) in PYTHONS_OWN else not members_of(container)


def _same_members(container, members) -> bool:
    if _is_empty(container) or not members:
        return _is_empty(container) and not members
    now = members_of(container)
    if len(now) != len(members):
        return False
    if isinstance(now, set):
        return set(map(id, now)) == set(map(id, members)) or now == members
    if isinstance(now, dict):  # the order too: a cache may keep its oldest entry first
        return all(map(_same, now, members)) and all(map(_same, now.values(), members.values()))
    return all(map(_same, now, members))


def _refill(container, members) -> None:
    if not _same_members(container, members):  # else leave it alone: the caller may be iterating over it
        fill(container, _living(members))


def _living(members):
    """Without what a weak dictionary or set held, and is gone."""
    if isinstance(members, dict):
        return {key: value for key, value in members.items() if not (_is_gone(key) or _is_gone(value))}
    return {m for m in members if not _is_gone(m)} if isinstance(members, set) else members


def _is_gone(member) -> bool:
    return isinstance(member, weakref.ref) and member() is None


def _reassign(holder: Holder, members: dict, keep: Collection[str]) -> None:
    now = holder.members()
    if holder.names is None and isinstance(holder.mapping, dict) and not keep:
        _refill(holder.mapping, members)  # in their old order too
        return
    for name in now.keys() | members.keys():
        if keep and holder.label(name) in keep:
            continue
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
            return members_of(value)
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
    members = value if isinstance(value, tuple) else dict(value) if isinstance(value, Slots) else members_of(value)
    return list(members.items()) if isinstance(members, dict) else [(member,) for member in members]


def _switches() -> dict[str, tuple[object, Callable]]:
    """Where torch's switches stand, and the function that sets each."""
    switches = {
        "grad mode": (torch.is_grad_enabled(), torch.set_grad_enabled),
        "threads": (torch.get_num_threads(), torch.set_num_threads),
        "determinism": (torch.get_deterministic_debug_mode(), torch.set_deterministic_debug_mode),
        "default dtype": (torch.get_default_dtype(), torch.set_default_dtype),
        "choice of attention kernels": (tuple(allowed() for allowed, _ in _ATTENTION), _allow_attention),
    }
    for kind in ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",):
        position = (torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind))
        switches[f"autocast ({kind})"] = (position, functools.partial(_set_autocast, kind))
    return switches


# Which kernels `scaled_dot_product_attention` may take; `torch.nn.attention.sdpa_kernel` sets them, on every device.
_ATTENTION = tuple(
    (getattr(torch.backends.cuda, f"{kernel}_sdp_enabled"), getattr(torch.backends.cuda, f"enable_{kernel}_sdp"))
    for kernel in ("flash", "mem_efficient", "math", "cudnn")
)


def _allow_attention(position: tuple[bool, ...]) -> None:
    for (_, allow), allowed in zip(_ATTENTION, position, strict=True):
        allow(allowed)


def _set_autocast(kind: str, position: tuple[bool, torch.dtype]) -> None:
    torch.set_autocast_enabled(kind, position[0])
    torch.set_autocast_dtype(kind, position[1])
