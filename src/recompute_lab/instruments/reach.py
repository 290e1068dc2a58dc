"""What a segment can reach: found by walking from it and its arguments, without running any of it.

Reachable is what hangs on the segment and its arguments: attributes of modules, functions and other objects,
parameters, buffers, closure variables, defaults, the members of containers, random generators; and what their code
names: globals, context and environment variables, and attributes of their classes and of modules. The code and
the globals of Python's own library, of torch, of NumPy and of the instruments are not searched, nor are objects of
compiled libraries, NumPy arrays excepted.
"""

from __future__ import annotations

import dis
import functools
import gc
import logging
import os
import sys
import threading
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, MutableMapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import BuiltinMethodType, CellType, CodeType, FunctionType, MethodType, ModuleType, SimpleNamespace

import torch
from torch import nn
from torch.nn.parameter import is_lazy
from torch.quasirandom import SobolEngine
from torch.utils.data import DataLoader, Dataset, Sampler

from recompute_lab.instruments.streams import Stream, generator_stream, is_generator

CONTAINERS = (list, dict, set, deque)
SCALARS = (bool, int, float, complex, str, bytes, type(None))
_PLAIN = frozenset(SCALARS)
PYTHONS_OWN = frozenset((*CONTAINERS, OrderedDict))
ABSENT = object()
WEAK = "weak container"
_REGISTRIES = ("_parameters", "_buffers", "_modules")
# Nothing that a segment computes with is kept there, and from some of it everything can be reached.
_NOT_SEARCHED = sys.stdlib_module_names | {"torch", "numpy", "builtins", "IPython", "ipykernel", "pytest", "_pytest"}
_MOST_FUNCTIONS = 5_000  # of a large library, a segment may name most; the state it writes is closer by
_MOST_CACHED = 64  # results in one cache that are looked at
_INSTRUMENTS = __name__.rpartition(".")[0] + "."
_WITNESS = _INSTRUMENTS + "witness."
_PARAMETRIZED = "torch.nn.utils.parametrize"  # makes a class for each module, and takes its weight away again
_ENVIRONMENT = frozenset(("environ", "getenv"))
_WEAK = weakref.WeakKeyDictionary, weakref.WeakValueDictionary, weakref.WeakSet
_STORE_GLOBAL = dis.opmap["STORE_GLOBAL"]


class ClassAttributes(MutableMapping):
    """The attributes of a class as a mapping that can be written to; those with double underscores left out."""

    def __init__(self, owner: type):
        self._owner = owner

    def __getitem__(self, name: str):
        return vars(self._owner)[name]

    def __setitem__(self, name: str, value) -> None:
        type.__setattr__(self._owner, name, value)

    def __delitem__(self, name: str) -> None:
        type.__delattr__(self._owner, name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.copy())

    def __len__(self) -> int:
        return len(self.copy())

    def copy(self) -> dict[str, object]:
        return {name: value for name, value in vars(self._owner).items() if name[:2] != "__"}


class Slots(MutableMapping):
    """The attributes of an object whose class has `__slots__`, as a mapping that can be written to."""

    def __init__(self, owner: object):
        self._owner = owner

    def __getitem__(self, name: str):
        try:
            return object.__getattribute__(self._owner, name)
        except AttributeError:
            raise KeyError(name) from None

    def __setitem__(self, name: str, value) -> None:
        object.__setattr__(self._owner, name, value)

    def __delitem__(self, name: str) -> None:
        object.__delattr__(self._owner, name)

    def __iter__(self) -> Iterator[str]:
        return iter([name for name in _slots_of(type(self._owner)) if hasattr(self._owner, name)])

    def __len__(self) -> int:
        return len(list(iter(self)))

    def copy(self) -> dict[str, object]:
        return dict(self)


class OfALogger(MutableMapping):
    """A logger's own attributes as a mapping that can be written to; not its place among the others."""

    def __init__(self, logger: logging.Logger):
        self._logger = logger

    def __getitem__(self, name: str):
        return vars(self._logger)[name]

    def __setitem__(self, name: str, value) -> None:
        setattr(self._logger, name, value)
        self._logger.manager._clear_cache()  # of what is logged at which level

    def __delitem__(self, name: str) -> None:
        delattr(self._logger, name)

    def __iter__(self) -> Iterator[str]:
        return iter([name for name in vars(self._logger) if name not in ("parent", "manager", "_cache")])

    def __len__(self) -> int:
        return len(list(iter(self)))

    def copy(self) -> dict[str, object]:
        return dict(self)


@dataclass(slots=True, eq=False)
class Holder:
    """A mapping from names to values. `names` are those that count; None for all, also such as are yet to come.

    `kind` is "attribute", "class attribute", "global" or "environment variable", `prefix` what the names are joined to.
    """

    kind: str
    prefix: str
    mapping: MutableMapping
    names: tuple[str, ...] | None = None

    def members(self) -> dict[str, object]:
        """What the mapping holds now, `ABSENT` where one of `names` is missing."""
        if self.names is None:
            return dict(self.mapping) if isinstance(self.mapping, dict) else dict(self.mapping.items())
        return {name: self.mapping.get(name, ABSENT) for name in self.names}

    def label(self, name: str) -> str:
        return join(self.prefix, name)


@dataclass
class Reach:
    """The places found, each with a name: "blocks.0.up.weight", "args[0]", or that of a variable.

    `tensors` by name, NumPy arrays among them as tensors on their memory; `kinds` says of each "parameter", "buffer",
    "argument", "NumPy array" or "tensor". `lazy` are parameters and buffers that have no values yet, `functions` those
    whose code was searched. Raises TypeError where `segment` cannot be called.
    """

    tensors: dict[str, torch.Tensor] = field(default_factory=dict)
    kinds: dict[str, str] = field(default_factory=dict)
    lazy: list[tuple[str, torch.Tensor]] = field(default_factory=list)
    modules: list[tuple[str, nn.Module]] = field(default_factory=list)
    holders: list[Holder] = field(default_factory=list)
    containers: list[tuple[str, object]] = field(default_factory=list)
    cells: list[tuple[str, CellType]] = field(default_factory=list)
    streams: list[Stream] = field(default_factory=list)
    functions: list[FunctionType] = field(default_factory=list)
    context_variables: list[ContextVar] = field(default_factory=list)
    caches: list[tuple[str, functools._lru_cache_wrapper]] = field(default_factory=list)

    @classmethod
    def of(cls, segment: Callable, *args, **kwargs) -> Reach:
        if not callable(segment):
            raise TypeError(f"a segment is a callable or an nn.Module; got {type(segment).__name__}")
        reach = cls()
        _Walk(reach).run(segment, args, kwargs)
        return reach


class _Walk:
    def __init__(self, reach: Reach):
        self.reach = reach
        self.seen: set[int] = set()
        self.labels: set[str] = set()
        self.named: set[tuple[int, str]] = set()  # (namespace, global's name)
        self.environment = False

    def run(self, segment, args: tuple, kwargs: dict) -> None:
        todo = [(f"kwargs[{key!r}]", value) for key, value in reversed(kwargs.items())]
        todo += [(f"args[{i}]", value) for i, value in reversed(list(enumerate(args)))]
        todo.append(("", segment))
        while todo:
            name, value = todo.pop()
            if isinstance(value, SCALARS) or value is ABSENT or id(value) in self.seen:
                continue
            self.seen.add(id(value))
            todo += reversed(list(self.visit(name, value)))

    def visit(self, name: str, value) -> Iterator[tuple[str, object]]:
        """Note one object; yield (name, object) for what can be reached from it."""
        if isinstance(value, nn.Module):  # most of what there is
            yield from self.visit_object(name, value, vars(value))
            yield from ((base.__name__, base) for base in type(value).__mro__)
        elif isinstance(value, torch.Tensor):
            self.note_tensor(name or "segment", value)
        elif (array := tensor_of(value)) is not None:
            self.reach.kinds.setdefault(name, "NumPy array")
            self.note_tensor(name, array)
        elif isinstance(value, ContextVar):
            self.reach.context_variables.append(value)
            yield value.name, value.get(ABSENT)
        elif is_generator(value):
            self.reach.streams.append(generator_stream(value, name))
        elif isinstance(value, MethodType | BuiltinMethodType):
            yield name, value.__self__
            yield name, getattr(value, "__func__", None)
        elif isinstance(value, functools.partial):
            yield name, value.func
            yield join(name, "args"), value.args
            yield join(name, "keywords"), value.keywords
        elif isinstance(value, (*CONTAINERS, tuple)):
            if not isinstance(value, tuple):
                self.note_container(name, value)
            held = value if isinstance(value, tuple) else members_of(value)
            members = held.items() if isinstance(held, dict) else enumerate(held)
            yield from ((f"{name}[{_told(key)}]", member) for key, member in members if not isinstance(member, SCALARS))
            if (attributes := attributes_of(value)) is not None:  # of a subclass of the user's
                yield from self.visit_object(name, value, attributes)
                yield from ((base.__name__, base) for base in type(value).__mro__)
        elif isinstance(value, staticmethod | classmethod):
            yield name, value.__func__
        elif isinstance(value, functools._lru_cache_wrapper):
            if _searched(value.__module__):
                self.reach.caches.append((name, value))
                yield from ((f"{name}(...)", result) for result in _held_by(value))
            yield name, value.__wrapped__
        elif isinstance(value, FunctionType):
            yield from self.visit_function(name, value)
        elif isinstance(value, type):
            yield from self.visit_class(value)
        elif isinstance(value, _WEAK):
            self.reach.kinds[name] = WEAK
            yield name, value.data
        elif isinstance(value, logging.Logger):
            self.reach.holders.append(Holder("attribute", name, OfALogger(value)))
            yield join(name, "parent"), value.parent
        elif (attributes := attributes_of(value)) is not None:
            yield from self.visit_object(name, value, attributes)
            yield from ((base.__name__, base) for base in type(value).__mro__)

    def visit_object(self, name: str, value, attributes: dict) -> Iterator[tuple[str, object]]:
        self.reach.holders.append(Holder("attribute", name, attributes))
        module = isinstance(value, nn.Module)
        if module:
            self.reach.modules.append((name, value))
        for key, attribute in attributes.items():
            if type(attribute) in _PLAIN:  # most are, and a model has many
                continue
            if type(attribute) in PYTHONS_OWN and not attribute and not (module and key in _REGISTRIES):
                if id(attribute) not in self.seen:  # nothing in it to visit: hooks, mostly
                    self.seen.add(id(attribute))
                    self.note_container(join(name, key), attribute)
            elif module and key in _REGISTRIES:
                self.reach.holders.append(Holder("attribute", name, attribute))
                for child, member in attribute.items():
                    if isinstance(member, torch.Tensor):
                        self.reach.kinds[join(name, child)] = "parameter" if key == "_parameters" else "buffer"
                    yield join(name, child), member
            elif module and key.endswith("_hooks") and isinstance(attribute, dict):
                self.reach.containers.append((join(name, key), attribute))
                # By their place: torch numbers the hooks of a whole process.
                yield from ((f"{join(name, key)}[{i}]", hook) for i, hook in enumerate(attribute.values()))
            else:
                yield join(name, key), attribute

    def visit_function(self, name: str, function: FunctionType) -> Iterator[tuple[str, object]]:
        if not _searched(function.__module__) and not function.__closure__:
            return
        if len(self.reach.functions) >= _MOST_FUNCTIONS:
            return
        self.reach.functions.append(function)
        self.reach.holders.append(Holder("attribute", name, vars(function)))
        yield from ((join(name, key), value) for key, value in vars(function).items())
        for variable, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            self.reach.cells.append((join(name, variable), cell))
            yield join(name, variable), contents(cell)
        positional = function.__code__.co_varnames[: function.__code__.co_argcount]
        defaults = function.__defaults__ or ()
        named = [*zip(reversed(positional), reversed(defaults), strict=False), *(function.__kwdefaults__ or {}).items()]
        yield from ((join(name, parameter), value) for parameter, value in named)
        if _searched(function.__module__):
            yield from self.visit_code(function.__code__, function.__globals__)

    def visit_code(self, code: CodeType, namespace: dict) -> Iterator[tuple[str, object]]:
        """The globals that the code names, and the names in them of modules of the user's own."""
        if not self.environment and not _ENVIRONMENT.isdisjoint(code.co_names):
            self.environment = True
            self.reach.holders.append(Holder("environment variable", "os.environ", os.environ))
        assigned = _assigned_globals(code) if _STORE_GLOBAL in code.co_code[::2] else ()
        for name in code.co_names:
            if name in namespace or name in assigned:
                yield from self.visit_global(name, namespace)
            value = namespace.get(name)
            if isinstance(value, ModuleType) and _searched(value.__name__):
                for attribute in code.co_names:
                    if attribute in vars(value):
                        yield from self.visit_global(attribute, vars(value))
        for const in code.co_consts:
            if isinstance(const, CodeType):
                yield from self.visit_code(const, namespace)

    def visit_global(self, name: str, namespace: dict) -> Iterator[tuple[str, object]]:
        value = namespace.get(name, ABSENT)
        if (id(namespace), name) in self.named or isinstance(value, ModuleType):
            return
        self.named.add((id(namespace), name))
        self.reach.holders.append(Holder("global", "", namespace, (name,)))  # a function's name, too, can be reassigned
        if not isinstance(value, type | FunctionType) or _searched(value.__module__):
            yield name, value

    def visit_class(self, owner: type) -> Iterator[tuple[str, object]]:
        if not _searched(owner.__module__) and owner.__module__ != _PARAMETRIZED:
            return
        attributes = ClassAttributes(owner)
        self.reach.holders.append(Holder("class attribute", owner.__name__, attributes))
        for name, member in attributes.items():
            for function in _functions_in(member):
                yield "", function
            if not _functions_in(member):
                yield join(owner.__name__, name), member
        if isinstance(call := vars(owner).get("__call__"), FunctionType):  # what an object does as a segment
            yield "", call

    def note_container(self, name: str, container) -> None:
        while name in self.labels:  # the default argument of a method, and of the one it overrides
            name += "'"
        self.labels.add(name)
        self.reach.containers.append((name, container))

    def note_tensor(self, name: str, tensor: torch.Tensor) -> None:
        if is_lazy(tensor):
            self.reach.lazy.append((name, tensor))
            return
        kind = self.reach.kinds.get(name) or ("argument" if name.startswith(("args[", "kwargs[")) else "tensor")
        while name in self.reach.tensors:  # two functions may have a variable of the same name
            name += "'"
        self.reach.tensors[name], self.reach.kinds[name] = tensor, kind


def _held_by(cache: functools._lru_cache_wrapper) -> list:
    """The tensors, arrays and containers in a cache: nobody can put them in, but what they hold can be put back."""
    if not 0 < cache.cache_info().currsize <= _MOST_CACHED:
        return []
    found = []
    for held in gc.get_referents(cache):  # the results themselves, or where there is no limit a dict of them
        found += held.values() if type(held) is dict else [held]
    return [value for value in found if isinstance(value, (torch.Tensor, *CONTAINERS)) or tensor_of(value) is not None]


@functools.lru_cache(maxsize=4096)
def _assigned_globals(code: CodeType) -> frozenset[str]:
    return frozenset(step.argval for step in dis.get_instructions(code) if step.opcode == _STORE_GLOBAL)


def join(name: str, key: str) -> str:
    if name:
        return f"{name}.{key}"
    return f"segment.{key}" if key in ("args", "kwargs") else key  # "args[0]" is an argument


def _told(key) -> str:
    if isinstance(key, weakref.ref):
        return f"<{type(key()).__name__}>"
    try:
        return repr(key)
    except Exception:  # an object of the user's that does not like to be shown
        return f"<{type(key).__name__}>"


# Of other people's classes, those whose attributes are their users' own.
_WITH_ATTRIBUTES = (
    nn.Module, FunctionType, SimpleNamespace, SobolEngine, DataLoader, Dataset, Sampler, threading.local,
)  # fmt: skip


def attributes_of(value) -> MutableMapping | None:
    """The attributes of a module, a function, or an object of somebody's own class; None for anything else."""
    if isinstance(value, _WITH_ATTRIBUTES):
        return vars(value)  # of `threading.local`, those of this thread
    if isinstance(value, type | ModuleType) or not _of_the_user(type(value).__module__):
        return None
    if type(value).__module__.startswith(_WITNESS):  # it may ride along in a segment, and is no part of it
        return None
    try:
        attributes = vars(value)
    except TypeError:  # it has none
        return Slots(value) if _slots_of(type(value)) else None
    except Exception:  # it does not like to be asked
        return None
    return attributes if isinstance(attributes, dict) else None


@functools.cache
def _slots_of(kind: type) -> tuple[str, ...]:
    slots = [vars(base).get("__slots__", ()) for base in kind.__mro__]
    names = [name for own in slots for name in ((own,) if isinstance(own, str) else own)]
    return tuple(name for name in dict.fromkeys(names) if not name.startswith("__"))


def members_of(container) -> dict | list | set:
    """What a list, dict, set or deque holds, in its order, as its base class has it: a subclass of somebody's may make
    things when they are looked up.
    """
    if type(container) in (dict, list, set):
        return container.copy()
    if isinstance(container, dict):
        keys = OrderedDict.__iter__ if isinstance(container, OrderedDict) else dict.__iter__
        return {key: dict.__getitem__(container, key) for key in keys(container)}
    if isinstance(container, set):
        return set(set.__iter__(container))
    return list((list if isinstance(container, list) else deque).__iter__(container))


def fill(container, members) -> None:
    """Let a list, dict, set or deque hold `members`, and nothing else, past what a subclass makes of it."""
    base = next(kind for kind in (OrderedDict, *CONTAINERS) if isinstance(container, kind))
    base.clear(container)
    if isinstance(container, dict):
        for key, member in dict(members).items():
            base.__setitem__(container, key, member)
    else:
        (base.update if base is set else base.extend)(container, members)


def contents(cell: CellType):
    """What a closure variable stands for; `ABSENT` where it has not been assigned yet."""
    try:
        return cell.cell_contents
    except ValueError:
        return ABSENT


def tensor_of(array) -> torch.Tensor | None:
    """The tensor that shares the memory of a NumPy array; None for anything else, and for what cannot be shared."""
    numpy = sys.modules.get("numpy")
    if numpy is None or not isinstance(array, numpy.ndarray) or not array.flags.writeable:
        return None
    try:
        return torch.from_numpy(array)
    except (TypeError, ValueError):  # text, objects, negative strides
        return None


def _functions_in(member) -> list[FunctionType]:
    """The functions behind a method, a static or class method, or a property."""
    if isinstance(member, property):
        parts = [member.fget, member.fset, member.fdel]
    elif isinstance(member, functools.cached_property):
        parts = [member.func]
    else:
        parts = [getattr(member, "__func__", member)]
    return [part for part in parts if isinstance(part, FunctionType)]


def _of_the_user(module: object) -> bool:
    """Not of Python, torch, NumPy or a tool around them."""
    return str(module).partition(".")[0] not in _NOT_SEARCHED


def _searched(module: object) -> bool:
    """Is code of that module read for what it names? The instruments' own globals are no part of a segment's state."""
    return _of_the_user(module) and not str(module).startswith(_INSTRUMENTS)
