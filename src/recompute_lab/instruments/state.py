"""The state a segment can reach: copied, compared, put back.

Reachable is what hangs on the segment and its arguments: attributes of modules and other objects, parameters, buffers,
closure cells, defaults, the members of containers, private random generators; and the process's own random streams.
Globals, `__slots__` and objects of compiled libraries are not searched.
"""

from __future__ import annotations

import functools
import random
import sys
from collections import deque
from collections.abc import Callable
from types import CellType, FunctionType, MethodType, ModuleType

import torch
from torch import nn

_CONTAINERS = (list, dict, set, deque)
_SCALARS = (bool, int, float, complex, str, bytes, type(None))
_REGISTRIES = ("_parameters", "_buffers", "_modules")
_ABSENT = object()


class Snapshot:
    """A copy of the reachable state. `restore()` puts it back, into the same objects; `changes()` names what differs.

    Attributes: `tensors`, every reachable tensor by name ("blocks.0.up.weight", "args[0]", or a closure's variable).
    """

    def __init__(self, segment: Callable, *args, **kwargs):
        self.tensors: dict[str, torch.Tensor] = {}
        self._holders: list[tuple[str, object, dict]] = []
        self._containers: list[tuple[str, object, object]] = []
        self._cells: list[tuple[str, CellType, object]] = []
        self._generators: list[tuple[str, object, object]] = []
        self._walk(segment, args, kwargs)
        self._values = {name: tensor.detach().clone() for name, tensor in self.tensors.items()}
        self._grads = [(leaf, leaf.grad) for leaf in self._leaves()]
        self._streams = _streams()

    def parameters(self) -> dict[str, torch.Tensor]:
        """The leaf tensors that require grad, by name."""
        return {name: t for name, t in self.tensors.items() if t.is_leaf and t.requires_grad}

    def clear_grads(self) -> None:
        """Set every reachable leaf's `.grad` to None; `restore()` brings the caller's tensors back."""
        for leaf, _ in self._grads:
            leaf.grad = None

    def restore(self) -> None:
        """Put everything back: the same objects, holding what they held."""
        for _, holder, attributes in self._holders:
            vars(holder).clear()
            vars(holder).update(attributes)
        for _, cell, value in self._cells:
            cell.cell_contents = value
        for _, container, members in self._containers:
            _refill(container, members)
        with torch.no_grad():
            for name, tensor in self.tensors.items():
                if not same_bits(tensor, self._values[name]):
                    tensor.copy_(self._values[name])
        for leaf, grad in self._grads:
            leaf.grad = grad
        for _, generator, state in self._generators:
            _set_generator(generator, state)
        _rewind(self._streams)

    def changes(self) -> list[str]:
        """Names of what differs from the copy, sorted. Random streams and grads are not listed."""
        changed = {name for name, t in self.tensors.items() if not same_bits(t, self._values[name])}
        for name, holder, attributes in self._holders:
            now = vars(holder)
            for key in now.keys() | attributes.keys():
                if not _same(now.get(key, _ABSENT), attributes.get(key, _ABSENT)):
                    changed.add(_join(name, key))
        for name, container, members in self._containers:
            if not _same_members(container, members):
                changed.add(name)
        changed.update(name for name, cell, value in self._cells if not _same(cell.cell_contents, value))
        return sorted(changed)

    def values_now(self, names: list[str]) -> dict[str, object]:
        """What the named tensors, attributes, containers and variables hold now, copied where they could still move."""
        values: dict[str, object] = {n: t.detach().clone() for n, t in self.tensors.items() if n in names}
        for name, holder, _ in self._holders:
            values.update((_join(name, key), _copied(value)) for key, value in vars(holder).items())
        values.update((name, _copied(container)) for name, container, _ in self._containers)
        values.update((name, _copied(cell.cell_contents)) for name, cell, _ in self._cells)
        return {name: values[name] for name in names if name in values}

    def _leaves(self) -> list[torch.Tensor]:
        """Reachable leaves, and those behind a captured non-leaf: a backward would write into their grads as well."""
        leaves = [t for t in self.tensors.values() if t.is_leaf]
        todo = [t.grad_fn for name, t in self.tensors.items() if t.grad_fn and not name.startswith(("args", "kwargs"))]
        seen = set()
        while todo:
            node = todo.pop()
            if node is None or node in seen:
                continue
            seen.add(node)
            if hasattr(node, "variable"):
                leaves.append(node.variable)
            todo += [following for following, _ in node.next_functions]
        return leaves

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

    def _visit(self, name: str, value):
        """Note one object; yield (name, object) for what can be reached from it."""
        if isinstance(value, torch.Tensor):
            self.tensors[name or "segment"] = value
        elif _is_generator(value):
            self._generators.append((name, value, _generator_state(value)))
        elif isinstance(value, MethodType):
            yield name, value.__self__
            yield name, value.__func__
        elif isinstance(value, functools.partial):
            yield name, value.func
            yield _join(name, "args"), value.args
            yield _join(name, "keywords"), value.keywords
        elif isinstance(value, FunctionType):
            yield from self._visit_function(value)
        elif isinstance(value, (*_CONTAINERS, tuple)):
            if not isinstance(value, tuple):
                self._containers.append((name, value, value.copy()))
            members = value.items() if isinstance(value, dict) else enumerate(value)
            yield from ((f"{name}[{key!r}]", member) for key, member in members)
        elif _has_attributes(value):
            self._holders.append((name, value, vars(value).copy()))
            for key, attribute in list(vars(value).items()):
                if isinstance(value, nn.Module) and key in _REGISTRIES:
                    self._containers.append((_join(name, key), attribute, attribute.copy()))
                    yield from ((_join(name, child), member) for child, member in attribute.items())
                else:
                    yield _join(name, key), attribute

    def _visit_function(self, function: FunctionType):
        for variable, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
            try:
                self._cells.append((variable, cell, cell.cell_contents))
            except ValueError:  # a variable that has not been assigned yet
                continue
            yield variable, cell.cell_contents
        yield "defaults", function.__defaults__ or ()
        yield "kwdefaults", function.__kwdefaults__ or {}


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """True where two tensors agree in shape, dtype and every bit: a NaN equals itself, 0.0 is not -0.0."""
    if a.shape != b.shape or a.dtype != b.dtype or a.layout != b.layout:
        return False
    if a.is_meta or b.is_meta:
        return a.is_meta and b.is_meta
    if a.layout is not torch.strided or a.is_quantized:
        return torch.equal(a, b)
    flat = [t.detach().resolve_conj().resolve_neg().reshape(-1).contiguous().view(torch.uint8) for t in (a, b)]
    return torch.equal(*flat)


def _join(name: str, key: str) -> str:
    return f"{name}.{key}" if name else key


def _has_attributes(value) -> bool:
    if isinstance(value, type | ModuleType) or not hasattr(value, "__dict__"):
        return False
    package = type(value).__module__.partition(".")[0]
    return isinstance(value, nn.Module) or package not in sys.stdlib_module_names | {"torch", "numpy", "builtins"}


def _same(now, before) -> bool:
    return now is before or (type(now) is type(before) and isinstance(now, _SCALARS) and now == before)


def _same_members(container, members) -> bool:
    if len(container) != len(members):
        return False
    if isinstance(container, dict):
        return all(key in container and _same(container[key], value) for key, value in members.items())
    if isinstance(container, set):
        return container == members
    return all(map(_same, container, members))


def _refill(container, members) -> None:
    if _same_members(container, members):
        return
    container.clear()
    (container.update if isinstance(container, dict | set) else container.extend)(members)


def _copied(value):
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    return value.copy() if isinstance(value, _CONTAINERS) else value


def _is_generator(value) -> bool:
    numpy = sys.modules.get("numpy")
    kinds = (torch.Generator, random.Random) + ((numpy.random.Generator, numpy.random.RandomState) if numpy else ())
    return isinstance(value, kinds)


def _generator_state(generator):
    if isinstance(generator, torch.Generator):
        return generator.get_state()
    if isinstance(generator, random.Random):
        return generator.getstate()
    return generator.bit_generator.state if hasattr(generator, "bit_generator") else generator.get_state()


def _set_generator(generator, state) -> None:
    if isinstance(generator, random.Random):
        generator.setstate(state)
    elif hasattr(generator, "bit_generator"):
        generator.bit_generator.state = state
    else:
        generator.set_state(state)


def _streams() -> dict:
    """The random streams that belong to the process: torch's, Python's, and NumPy's where it is loaded."""
    streams = {"torch": torch.get_rng_state(), "python": random.getstate()}
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        streams["cuda"] = torch.cuda.get_rng_state_all()
    if "numpy" in sys.modules:
        streams["numpy"] = sys.modules["numpy"].random.get_state()
    return streams


def _rewind(streams: dict) -> None:
    torch.set_rng_state(streams["torch"])
    random.setstate(streams["python"])
    if "cuda" in streams:
        torch.cuda.set_rng_state_all(streams["cuda"])
    if "numpy" in streams:
        sys.modules["numpy"].random.set_state(streams["numpy"])
