"""The state a segment can reach: copied, compared, put back.

Reachable is what hangs on the segment and its arguments: attributes of modules, functions and other objects,
parameters, buffers, closure variables, defaults, the members of containers, private random generators; and what belongs
to the process: its random streams, and torch's switches (grad mode, threads, determinism, dtype). Globals, class
attributes, `__slots__` and objects of compiled libraries (a NumPy array, say) are not searched. Of a captured tensor
with a history, the values are put back, the history is not.
"""

from __future__ import annotations

import functools
import sys
from collections import deque
from collections.abc import Callable, Iterator
from types import BuiltinMethodType, CellType, FunctionType, MethodType, ModuleType, SimpleNamespace

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from recompute_lab.instruments.streams import generator_stream, is_generator, process_streams

_CONTAINERS = (list, dict, set, deque)
_SCALARS = (bool, int, float, complex, str, bytes, type(None))
_REGISTRIES = ("_parameters", "_buffers", "_modules")
_ABSENT = object()


class Snapshot:
    """A copy of the reachable state. `restore()` puts it back, into the same objects; `changes()` names what differs.

    Attributes: `tensors`, every reachable tensor by name ("blocks.0.up.weight", "args[0]", or a closure's variable).
    Raises TypeError where `segment` cannot be called, ValueError where a parameter has no values yet.
    """

    def __init__(self, segment: Callable, *args, **kwargs):
        if not callable(segment):
            raise TypeError(f"a segment is a callable or an nn.Module; got {type(segment).__name__}")
        self.tensors: dict[str, torch.Tensor] = {}
        self._attributes: list[tuple[str, dict, dict]] = []
        self._containers: list[tuple[str, object, object]] = []
        self._cells: list[tuple[str, CellType, object]] = []
        self._streams = process_streams()
        self._walk(segment, args, kwargs)
        # `.data` is the same memory under a version counter of its own: writing to it upsets no graph of the caller's.
        self._held = {name: (t.data, t.detach().clone(), t.requires_grad) for name, t in self.tensors.items()}
        self._grads = [(tensor, tensor.grad) for tensor in self._bearers_of_grads()]
        self._states = [stream.read() for stream in self._streams]
        self._switches = _switches()

    def parameters(self) -> dict[str, torch.Tensor]:
        """The leaf tensors that require grad, by name."""
        return {name: t for name, t in self.tensors.items() if t.is_leaf and t.requires_grad}

    def clear_grads(self) -> None:
        """Set every reachable `.grad` to None; `restore()` brings the caller's tensors back."""
        for tensor, _ in self._grads:
            tensor.grad = None

    def restore(self) -> None:
        """Put everything back: the same objects, holding what they held."""
        for _, holder, members in self._attributes + self._containers:
            _refill(holder, members)
        for _, cell, value in self._cells:
            if value is not _ABSENT:
                cell.cell_contents = value
            elif _contents(cell) is not _ABSENT:
                del cell.cell_contents
        for name, tensor in self.tensors.items():
            _put_back(tensor, *self._held[name])
        for tensor, grad in self._grads:
            tensor.grad = grad
        for stream, state in zip(self._streams, self._states, strict=True):
            stream.write(state)
        for switch, position in _switches().items():
            if position != self._switches[switch]:
                switch(self._switches[switch])

    def changes(self) -> list[str]:
        """Names of what differs from the copy, sorted. Random streams and grads are not listed."""
        changed = {name for name, t in self.tensors.items() if not same_bits(t, self._held[name][1])}
        for name, holder, members in self._attributes:
            keys = holder.keys() | members.keys()
            changed |= {_join(name, k) for k in keys if not _same(holder.get(k, _ABSENT), members.get(k, _ABSENT))}
        changed |= {name for name, container, members in self._containers if not _same_members(container, members)}
        changed |= {name for name, cell, value in self._cells if not _same(_contents(cell), value)}
        return sorted(changed)

    def values_now(self, names: list[str]) -> dict[str, object]:
        """What the named tensors, attributes, containers and variables hold now, copied to be compared later."""
        now: dict[str, object] = dict(self.tensors)
        for name, holder, _ in self._attributes:
            now.update((_join(name, key), value) for key, value in holder.items())
        now.update((name, container) for name, container, _ in self._containers)
        now.update((name, _contents(cell)) for name, cell, _ in self._cells)
        return {name: _copied(now.get(name, _ABSENT)) for name in names}

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

    def _walk(self, segment, args, kwargs) -> None:
        seen: set[int] = set()
        todo = [(f"kwargs[{key!r}]", value) for key, value in reversed(kwargs.items())]
        todo += [(f"args[{i}]", value) for i, value in reversed(list(enumerate(args)))]
        todo.append(("", segment))
        while todo:
            name, value = todo.pop()
            if isinstance(value, _SCALARS) or id(value) in seen:
                continue
            seen.add(id(value))
            todo += reversed(list(self._visit(name, value)))

    def _visit(self, name: str, value) -> Iterator[tuple[str, object]]:
        """Note one object; yield (name, object) for what can be reached from it."""
        if isinstance(value, torch.Tensor):
            self._note_tensor(name or "segment", value)
        elif is_generator(value):
            self._streams.append(generator_stream(value))
        elif isinstance(value, MethodType | BuiltinMethodType):
            yield name, value.__self__
            yield name, getattr(value, "__func__", None)
        elif isinstance(value, functools.partial):
            yield name, value.func
            yield _join(name, "args"), value.args
            yield _join(name, "keywords"), value.keywords
        elif isinstance(value, (*_CONTAINERS, tuple)):
            if not isinstance(value, tuple):
                self._containers.append((name, value, value.copy()))
            members = value.items() if isinstance(value, dict) else enumerate(value)
            yield from ((f"{name}[{key!r}]", member) for key, member in members if not isinstance(member, _SCALARS))
        elif (attributes := _attributes_of(value)) is not None:
            self._attributes.append((name, attributes, attributes.copy()))
            for key, attribute in attributes.items():
                if isinstance(value, nn.Module) and key in _REGISTRIES:
                    self._attributes.append((name, attribute, attribute.copy()))
                    yield from ((_join(name, child), member) for child, member in attribute.items())
                else:
                    yield _join(name, key), attribute
            if isinstance(value, FunctionType):
                yield from self._visit_function(name, value)

    def _visit_function(self, name: str, function: FunctionType) -> Iterator[tuple[str, object]]:
        for variable, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            self._cells.append((_join(name, variable), cell, _contents(cell)))
            yield _join(name, variable), _contents(cell)
        yield _join(name, "defaults"), function.__defaults__
        yield _join(name, "kwdefaults"), function.__kwdefaults__

    def _note_tensor(self, name: str, tensor: torch.Tensor) -> None:
        if is_lazy(tensor):
            raise ValueError(f"{name} has no values yet: call the module once, so that its lazy parameters get a shape")
        while name in self.tensors:  # two functions may have a variable of the same name
            name += "'"
        self.tensors[name] = tensor


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


def _join(name: str, key: str) -> str:
    if name:
        return f"{name}.{key}"
    return f"segment.{key}" if key in ("args", "kwargs") else key  # "args[0]" is an argument


def _attributes_of(value) -> dict | None:
    """The attributes of a module, a function, or an object of somebody's own class; None for anything else."""
    if isinstance(value, nn.Module | FunctionType | SimpleNamespace):
        return vars(value)
    package = str(type(value).__module__).partition(".")[0]
    if isinstance(value, type | ModuleType) or package in sys.stdlib_module_names | {"torch", "numpy", "builtins"}:
        return None
    try:
        attributes = vars(value)
    except Exception:  # it has none, or does not like to be asked
        return None
    return attributes if isinstance(attributes, dict) else None


def _contents(cell: CellType):
    try:
        return cell.cell_contents
    except ValueError:  # a variable that has not been assigned yet
        return _ABSENT


def _same(now, before) -> bool:
    if now is before:
        return True
    # repr, since a NaN is the same as a NaN, and 0.0 is not -0.0
    return type(now) is type(before) and isinstance(now, _SCALARS) and repr(now) == repr(before)


def _same_members(container, members) -> bool:
    if len(container) != len(members):
        return False
    if isinstance(container, set):
        return container == members
    if isinstance(container, dict):  # the order too: a cache may keep its oldest entry first
        return all(map(_same, container, members)) and all(map(_same, container.values(), members.values()))
    return all(map(_same, container, members))


def _refill(container, members) -> None:
    if _same_members(container, members):  # leave it alone: the caller may be iterating over it
        return
    container.clear()
    (container.update if isinstance(container, dict | set) else container.extend)(members)


def _copied(value, inside: tuple[int, ...] = ()):
    """A copy down to the tensors, in tuples: a later pass would change what a shallow copy holds."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if id(value) in inside:  # it contains itself
        return "..."
    attributes = None if isinstance(value, FunctionType) else _attributes_of(value)
    members = value if attributes is None else attributes
    if not isinstance(members, (*_CONTAINERS, tuple)) or isinstance(members, set):
        return members.copy() if isinstance(members, set) else members
    members = members.items() if isinstance(members, dict) else members
    return type(value), *(_copied(member, (*inside, id(value))) for member in members)


def _switches() -> dict[Callable, object]:
    """Where torch's switches stand, by the function that sets each."""
    return {
        torch.set_grad_enabled: torch.is_grad_enabled(),
        torch.set_num_threads: torch.get_num_threads(),
        torch.set_deterministic_debug_mode: torch.get_deterministic_debug_mode(),
        torch.set_default_dtype: torch.get_default_dtype(),
    }
