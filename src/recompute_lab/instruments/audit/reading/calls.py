"""What a call returns: Python's builtins, torch's functions, a tensor's methods, the file's own functions."""

from __future__ import annotations

import ast

from recompute_lab.instruments.audit.reading import vocabulary as words
from recompute_lab.instruments.audit.reading.expressions import Expressions, chooses, is_fixed, is_text
from recompute_lab.instruments.audit.reading.kinds import (
    ANY_KEY,
    CLASS,
    EXTERNAL,
    FUNCTION,
    INSTANCE,
    ITEMS,
    LAYER,
    MAPPING,
    MASK,
    MODULE,
    NEVER,
    PLAIN,
    PLAIN_KIND,
    READ_KIND,
    SUSPECTED,
    TENSOR,
    TENSOR_KIND,
    TUPLE,
    UNKNOWN,
    UNKNOWN_KIND,
    Value,
    at_key,
    carried_read,
    element,
    items,
    join,
    joined,
    mapping,
    read,
    sized,
)

_READ_KINDS = (READ_KIND, TENSOR_KIND)


class Calls(Expressions):
    def call(self, node: ast.Call) -> Value:
        func = node.func
        if isinstance(func, ast.Attribute):
            if func.attr in words.CHECKPOINTS:
                return self.checkpointed(node)
            if (
                isinstance(func.value, ast.Call)
                and isinstance(func.value.func, ast.Name)
                and func.value.func.id == "super"
            ):
                return self.call_super(node, func.attr)
            base = self.of(func.value)
            if base.kind == MODULE:
                return self.call_value(node, self.module.imported(f"{base.parts}.{func.attr}"))
            return self.method(node, base, func.attr)
        if isinstance(func, ast.Name):
            known = self.look_up(func.id)
            if func.id in words.CHECKPOINTS and (known is None or known.kind != FUNCTION):
                return self.checkpointed(node)  # else the file's own, which may save a model to a disk
            if known is None:
                builtin = _BUILTINS.get(func.id)
                return builtin(self, node) if builtin else self.call_unknown(node)
            return self.call_value(node, known)
        value = self.of(func)
        if isinstance(func, ast.Subscript) and func not in self.record.sites:
            index = self.of(func.slice)
            if index.kind in _READ_KINDS:  # whatever the container is: one function is called, or another
                self.site(func, "index", index.origin or func.slice, suspected=index.suspected)
        return self.call_value(node, value)

    # Arguments.

    def arguments(self, node: ast.Call) -> list[Value]:
        values = [self.of(argument) for argument in node.args]
        values += [self.of(keyword.value) for keyword in node.keywords]
        return values

    def positional(self, node: ast.Call) -> list[Value]:
        """As far as their places are known: up to a star."""
        values = []
        for argument in node.args:
            value = self.of(argument)
            if isinstance(argument, ast.Starred):
                break
            values.append(value)
        return values

    def call_unknown(self, node: ast.Call) -> Value:
        self.arguments(node)
        return UNKNOWN

    def checkpointed(self, node: ast.Call) -> Value:
        """checkpoint(function, *args): the function runs twice."""
        values = self.arguments(node)
        value = values[0] if node.args else None
        for number, keyword in enumerate(node.keywords, len(node.args)):
            if keyword.arg in ("function", "fn", "functions", "module"):
                value = values[number]
        if value is None:
            return UNKNOWN
        self.module.runs_twice(value)
        if value.kind == FUNCTION:
            return self.module.returned(value.parts, self, node.args[1:], values[1 : len(node.args)])
        return TENSOR if value.kind == LAYER else UNKNOWN

    # The file's own functions and classes.

    def call_value(self, node: ast.Call, func: Value) -> Value:
        kind = func.kind
        if kind == MODULE:
            return self.call_torch(node, func.parts)
        if kind == FUNCTION:
            if func.partial:
                self.arguments(node)
                return self.module.returned(func.parts, self)
            return self.call_function(node, func.parts)
        if kind == CLASS:
            return self.construct(node, func.parts)
        if kind == INSTANCE:
            return self.call_instance(node, func.parts)
        values = self.arguments(node)
        if kind == LAYER:
            self.is_tensor_argument(node)
            if func.parts in words.PAIR_LAYERS:
                return Value(TUPLE, (TENSOR, TENSOR))
            return sized(values[0].origin) if values and values[0].sized else TENSOR
        if kind == EXTERNAL:
            self.record.calls.add(func.parts)
            for value in values:
                if value.kind == FUNCTION:
                    self.record.calls.add(value.parts)
            name = func.parts.rsplit(".", 1)[-1]
            if name == "partial":
                return self.partial(values)
            if name == "SimpleNamespace":
                return mapping({k.arg: self.of(k.value) for k in node.keywords if k.arg})
            if name == "deepcopy" or name == "copy":
                return values[0] if values else UNKNOWN
            return Value(EXTERNAL, func.parts) if name[:1].isupper() else UNKNOWN
        return UNKNOWN

    def call_function(self, node: ast.Call, record, bound: bool | None = None) -> Value:
        values = [self.of(argument) for argument in node.args]
        keywords = {}
        for keyword in node.keywords:
            value = self.of(keyword.value)
            if keyword.arg is not None:
                keywords[keyword.arg] = (value, keyword.value)
            elif value.kind == MAPPING:  # **options
                keywords |= {key: (of, keyword.value) for key, of in value.parts.items() if isinstance(key, str)}
        return self.module.returned(record, self, node.args, values, keywords, bound)

    def construct(self, node: ast.Call, owner) -> Value:
        init = owner.method("__init__")
        if init is not None:
            self.call_function(node, init)
        else:
            fields = owner.all_fields()  # a dataclass, a named tuple
            given = dict(zip(fields, self.positional(node), strict=False))
            given |= {k.arg: self.of(k.value) for k in node.keywords}
            for name in fields:
                if name in given:
                    self.module.assigned(owner, name, given[name], self.record)
        if any(
            base.rsplit(".", 1)[-1] in ("Enum", "IntEnum", "StrEnum", "Exception") for base in owner.outside_bases()
        ):
            return PLAIN
        self.record.calls.add(owner)
        return Value(INSTANCE, owner)

    def call_instance(self, node: ast.Call, owner) -> Value:
        forward = owner.method("forward") or owner.method("__call__")
        if forward is None:
            self.arguments(node)
            return UNKNOWN
        self.is_tensor_argument(node, forward)
        return self.call_function(node, forward)

    def is_tensor_argument(self, node: ast.Call, record=None) -> None:
        if node.args and (record is None or next(iter(record.params.values()), UNKNOWN).kind == TENSOR_KIND):
            self.is_tensor(node.args[0])

    def call_super(self, node: ast.Call, name: str) -> Value:
        owner = self.record.owner
        for base in owner.bases if owner else ():
            if base.kind == CLASS and (method := base.parts.method(name)):
                return self.call_function(node, method)
        return self.call_unknown(node)

    def partial(self, values: list[Value]) -> Value:
        """The function, but a call no longer shows which argument goes where."""
        if not values or values[0].kind != FUNCTION:
            return values[0] if values else UNKNOWN
        value = Value(FUNCTION, values[0].parts)
        value.partial = True
        return value

    # A method.

    def method(self, node: ast.Call, base: Value, name: str) -> Value:
        kind = base.kind
        if kind == INSTANCE:
            return self.instance_method(node, base, name)
        if kind == TENSOR_KIND:
            return self.tensor_method(node, base, name)
        if kind in (ITEMS, TUPLE, MAPPING):
            return self.container_method(node, base, name)
        if kind == CLASS:
            method = base.parts.method(name)
            if method is not None:
                return self.call_function(node, method, bound=False)
        values = self.arguments(node)
        if kind == READ_KIND:
            return base
        if kind == PLAIN_KIND:
            return PLAIN
        if kind == EXTERNAL:
            self.record.calls.add(f"{base.parts}.{name}")
            return UNKNOWN
        if kind == FUNCTION:
            return self.module.returned(base.parts, self) if name == "__call__" else UNKNOWN
        if kind == LAYER:
            return TENSOR if name in ("forward", "__call__") else UNKNOWN
        # Of unknown kind: the method may tell.
        if name in words.META_METHODS:
            if name in words.TENSOR_METHODS:
                self.is_tensor(node.func.value)
            return PLAIN if name in ("dim", "numel", "nelement", "stride", "is_contiguous", "ndimension") else UNKNOWN
        if name in words.TENSOR_METHODS or (
            name[-1] == "_" and name[-2:] != "__" and name[:-1] in words.TENSOR_METHODS
        ):
            self.is_tensor(node.func.value)
            return self.tensor_result(node, TENSOR, name, values)
        if name in words.SHARED_METHODS and self.module.has_torch and not self.module.uses_arrays(self.record):
            if any(map(is_text, node.args)):
                return UNKNOWN  # dataset.unique("label"): a column, not a dimension
            result = self.tensor_result(node, SUSPECTED, name, values)
            if result.kind == TENSOR_KIND and not self.record.handles_tensors:
                result = SUSPECTED if not (result.sized or result.mask) else result
            return result
        if name == "item" and self.module.has_torch and not node.args:
            return read(node)
        return UNKNOWN

    def instance_method(self, node: ast.Call, base: Value, name: str) -> Value:
        owner = base.parts
        method = owner.method(name)
        if method is not None:
            return self.call_function(node, method)
        if name in ("register_buffer", "register_parameter"):
            return self.registered(node, owner)
        value = self.instance_attribute(base, name)
        if value.kind == UNKNOWN_KIND:
            self.arguments(node)
            return UNKNOWN
        return self.call_value(node, value)

    def registered(self, node: ast.Call, owner) -> Value:
        values = self.arguments(node)
        if node.args and isinstance(node.args[0], ast.Constant) and isinstance(node.args[0].value, str):
            value = TENSOR
            if len(node.args) > 1 and values[1].mask:
                value = MASK
            self.module.assigned(owner, node.args[0].value, value, self.record)
        return PLAIN

    def container_method(self, node: ast.Call, base: Value, name: str) -> Value:
        values = self.arguments(node)
        holder = node.func.value
        if name in ("append", "add", "insert", "appendleft") and values and base.kind == ITEMS:
            self.put(holder, base, None, values[-1])
            return PLAIN
        if name in ("extend", "update") and values and base.kind == ITEMS:
            value = values[0]
            if value.sized:
                base = items(base.parts, base.origin or value.origin, sized=True, hashed=base.hashed)
            self.put(holder, base, None, element(value))
            return PLAIN
        if base.kind == MAPPING:
            if name in ("get", "pop", "setdefault"):
                key = node.args[0] if node.args else None
                if values and values[0].kind == READ_KIND and chooses(base):
                    self.site(node, "index", values[0].origin or key, suspected=values[0].suspected)
                return at_key(base, key.value if isinstance(key, ast.Constant) else ANY_KEY)
            of = {"items": Value(TUPLE, (PLAIN, at_key(base))), "values": at_key(base), "keys": PLAIN}.get(name)
            return items(of, base.origin, sized=base.sized) if of is not None else base if name == "copy" else UNKNOWN
        if name in ("values", "copy", "__iter__"):
            return base
        if name == "items":
            return items(Value(TUPLE, (PLAIN, element(base))), base.origin, sized=base.sized)
        if name in ("pop", "popleft", "get", "setdefault"):
            return element(base) if base.kind == ITEMS else UNKNOWN
        if name == "sort" and not self.by_key(node, element(base)) and element(base).kind == TENSOR_KIND:
            self.site(node, "Python's sorted", node, test=node)
        if name in ("index", "count") and element(base).kind in _READ_KINDS:
            return read(node)
        return PLAIN if name in ("sort", "clear", "remove", "index", "count", "keys", "reverse") else UNKNOWN

    def tensor_method(self, node: ast.Call, base: Value, name: str) -> Value:
        values = self.arguments(node)
        if name not in words.METHODS and not name.endswith("_"):
            return UNKNOWN  # no tensor has it: the annotation, or what a call showed, was not all
        return self.tensor_result(node, base, name, values)

    def tensor_result(self, node: ast.Call, base: Value, name: str, values: list[Value]) -> Value:
        """Of a tensor's method, and of the function of the same name."""
        if name in words.READERS:
            if name == "tolist":
                return items(read(node), base.origin, sized=base.sized)
            value = read(node)
            value.mask = name == "numpy" and base.mask
            return value
        if name in words.META_METHODS:
            if not base.sized or name not in words.SIZE_METHODS:
                return PLAIN
            return PLAIN if name == "size" and node.args and is_fixed(node.args[0], base.origin) else read(base.origin)
        if name in words.SIZES:
            return self.of_a_size(node, name)
        if name == "where" and not values:
            return items(self.of_a_size(node, name))
        if name in words.PAIRS:
            return Value(TUPLE, (TENSOR, TENSOR))
        if name in words.PAIR_IF_DIM and self.has_dim(node, values):
            return Value(TUPLE, (TENSOR, TENSOR))
        if name in words.LISTS:
            for value in values:
                if value.kind in _READ_KINDS or (value.kind == ITEMS and value.parts.kind == READ_KIND):
                    self.record.sizes.add(node)
            return items(TENSOR)
        if name in words.MASKS:
            return MASK
        if name == "repeat_interleave" and any(value.kind == TENSOR_KIND for value in values[:1]):
            self.record.sizes.add(node)
            return sized(node)
        if base.sized and name not in words.REDUCTIONS:
            return base
        if name in ("to", "type") and any(_is_bool(argument) for argument in node.args):
            return MASK
        return MASK if base.mask and name in words.KEEPS_MASK else TENSOR

    def has_dim(self, node: ast.Call, values: list[Value]) -> bool:
        """max(dim=1), max(1): two tensors. max(other): one. A function's own tensor is not among the values."""
        if any(keyword.arg in ("dim", "axis") for keyword in node.keywords):
            return True
        positional = node.args[len(node.args) + len(node.keywords) - len(values) :]
        return bool(positional) and _is_number(positional[0])

    def of_a_size(self, node: ast.Call, name: str) -> Value:
        self.record.sizes.add(node)
        given = {keyword.arg for keyword in node.keywords}
        if name in ("unique", "unique_consecutive"):
            extra = len(given & {"return_inverse", "return_counts"})
            if extra:
                return Value(TUPLE, (sized(node), *[sized(node)] * extra))
        if name == "nonzero" and any(k.arg == "as_tuple" and getattr(k.value, "value", True) for k in node.keywords):
            return items(sized(node))
        return sized(node)

    # Torch and other libraries.

    def call_torch(self, node: ast.Call, dotted: str) -> Value:
        root, _, name = dotted.rpartition(".")
        values = self.arguments(node)
        if not dotted.startswith("torch"):
            return self.call_library(node, dotted, values)
        if name in words.CHECKPOINTS:
            return self.checkpointed(node)
        computes = name.lstrip("_")[:1].islower() and name not in words.META_FUNCTIONS and not _asks(name)
        if root in words.TENSOR_MODULES and computes:
            return self.torch_function(node, name, values)
        if root in ("torch.nn", "torch.nn.modules", "torch.nn.parameter") and name[:1].isupper():
            return self.layer(node, name, values)
        if root == "torch" and name == "Tensor":
            return TENSOR
        if root == "torch.Tensor" and values and values[0].kind in (TENSOR_KIND, UNKNOWN_KIND):
            self.is_tensor(node.args[0]) if node.args else None
            return self.tensor_result(node, TENSOR, name, values[1:])
        if root == "torch" and name.endswith("Tensor"):
            return MASK if name in words.MASK_TYPES else TENSOR
        if root == "torch" and (name in words.META_FUNCTIONS or _asks(name)):
            if name in ("is_tensor", "is_floating_point", "is_complex", "numel") and node.args:
                return read(values[0].origin) if name == "numel" and values[0].sized else PLAIN
            return PLAIN
        if root.startswith(("torch.nn.utils", "torch.autograd", "torch.functional")) and name[:1].islower():
            if name == "grad":
                return items(TENSOR)
            return TENSOR if name.startswith(("clip_grad", "pad_", "parameters_to", "get_total")) else UNKNOWN
        if root.startswith(_QUESTIONS):
            return PLAIN if name.startswith(("is_", "get_", "current", "device_count", "_is")) else UNKNOWN
        return UNKNOWN

    def torch_function(self, node: ast.Call, name: str, values: list[Value]) -> Value:
        if name in ("cond", "while_loop", "vmap", "compile", "jit", "load", "hub"):
            return values[0] if name in ("compile", "vmap") and values else TENSOR if name == "cond" else UNKNOWN
        if node.args and name not in _MAKERS and not name.startswith(("_foreach", "_calculate", "calculate")):
            self.is_tensor(node.args[0])
        if name.startswith(("_calculate", "calculate")):  # of torch.nn.init: fans and gains
            return Value(TUPLE, (PLAIN, PLAIN)) if "fan_in_and" in name else PLAIN
        if name in _FROM_NUMBERS and not any(v.kind in _READ_KINDS or v.sized for v in values):
            return PLAIN  # numbers that were known before: another way to write range(n)
        first = values[0] if values else TENSOR
        if name == "where":
            if len(node.args) == 1 and not node.keywords:
                return items(self.of_a_size(node, name))
            return TENSOR
        if (
            name in ("tensor", "as_tensor", "stack", "cat", "concat", "concatenate", "hstack", "vstack")
            and first.kind == ITEMS
        ):
            # As long as the list is.
            return Value(TENSOR_KIND, None, first.origin, sized=True) if first.sized else TENSOR
        if name in _MAKERS:
            by_value = next((v for v in values if v.kind in _READ_KINDS or v.sized), None)
            if by_value is not None and name in _OF_A_SIZE:
                return sized(by_value.origin or node)
            return MASK if any(k.arg == "dtype" and _is_bool(k.value) for k in node.keywords) else TENSOR
        base = first if first.kind == TENSOR_KIND else TENSOR
        return self.tensor_result(node, base, name, values[1:])

    def layer(self, node: ast.Call, name: str, values: list[Value]) -> Value:
        if name in ("Parameter", "UninitializedParameter", "Buffer"):
            return TENSOR
        if name in ("ModuleList", "ParameterList"):
            given = values[0] if values else items(NEVER)
            return given if given.kind == ITEMS else items(element(given))
        if name in ("Sequential", "ModuleDict", "ParameterDict"):
            for value in values:
                inner = element(value) if value.kind in (ITEMS, TUPLE) else value
                if inner.kind == INSTANCE:
                    self.record.calls.add(inner.parts)
            if name == "Sequential":
                return Value(LAYER, name)
            return items(at_key(values[0])) if values and values[0].kind == MAPPING else items(UNKNOWN)
        return UNKNOWN if name == "Module" else Value(LAYER, name)

    def call_library(self, node: ast.Call, dotted: str, values: list[Value]) -> Value:
        """NumPy and math keep what was read; of the rest nothing is known."""
        library, _, name = dotted.partition(".")
        if library in ("numpy", "math", "scipy", "cmath", "statistics"):
            for value in values:
                if value.kind in _READ_KINDS:
                    result = read(value.origin or node)
                    result.sized = value.sized or name in _ARRAY_SIZES
                    return result
                if value.kind == ITEMS and value.parts.kind in _READ_KINDS:
                    return read(value.parts.origin or node)
            return PLAIN if library != "scipy" else UNKNOWN
        if dotted == "collections.namedtuple":
            return self.module.named_tuple(node)
        if dotted == "functools.partial":
            return self.partial(values)
        if dotted in ("copy.copy", "copy.deepcopy"):
            return values[0] if values else UNKNOWN
        if library in ("random", "os", "time", "re", "json", "logging", "warnings", "sys", "inspect", "pathlib"):
            return PLAIN
        if dotted in ("itertools.groupby", "collections.Counter") and values:
            of = element(values[0])
            by_value = carried_read(of)  # equal elements are one: how many there are depends on their values
            if name == "Counter":
                return mapping({ANY_KEY: PLAIN}, by_value.origin if by_value else None, sized=by_value is not None)
            pair = Value(TUPLE, (read(node) if by_value else UNKNOWN, items(of)))
            return items(pair, by_value.origin if by_value else None, sized=by_value is not None)
        if library == "itertools":
            return joined([items(element(value)) for value in values]) if values else UNKNOWN
        if library == "collections" and name in ("deque", "OrderedDict"):
            return values[0] if values and values[0].kind in (ITEMS, MAPPING) else items(NEVER)
        if library == "einops":
            return TENSOR
        return UNKNOWN

    # Builtins.

    def number(self, node: ast.Call) -> Value:
        """int(t), float(t), bool(t)."""
        if not node.args:
            return PLAIN
        value = self.of(node.args[0])
        if value.kind == TENSOR_KIND:
            return read(node)
        if value.kind == READ_KIND:
            return value
        if value.kind == ITEMS and value.sized and node.func.id == "bool":
            return read(value.origin)
        if value.kind == UNKNOWN_KIND and isinstance(node.args[0], ast.Name):
            return self.module.number_of_parameter(node, self.record)
        return PLAIN

    def length(self, node: ast.Call) -> Value:
        value = self.of(node.args[0]) if node.args else PLAIN
        own = value.parts.method("__len__") if value.kind == INSTANCE else None
        if own is not None:
            found = self.module.returned(own, self)
            return found if found.kind == READ_KIND else PLAIN
        return read(value.origin) if value.sized else PLAIN

    def extreme(self, node: ast.Call) -> Value:
        """max and min compare, and keep the one or the other."""
        values = [self.of(argument) for argument in node.args]
        if self.by_key(node, element(values[0]) if len(values) == 1 else joined(values)):
            return element(values[0]) if len(values) == 1 else joined(values)
        if len(values) == 1:
            value = element(values[0])
            if values[0].kind == READ_KIND:
                return values[0]
        else:
            value = joined(values)
        if value.kind == TENSOR_KIND:
            self.site(node, f"Python's {node.func.id}", node, test=node)
            return TENSOR
        return value if value.kind != UNKNOWN_KIND else UNKNOWN

    def by_key(self, node: ast.Call, of: Value) -> bool:
        """True where max, min or sorted compare by a key; a finding, where the key is a tensor's value."""
        for keyword in node.keywords:
            if keyword.arg == "key":
                key = self.of(keyword.value)
                value = self.module.returned(key.parts, self, [], [of]) if key.kind == FUNCTION else UNKNOWN
                if value.kind in _READ_KINDS:
                    name = node.func.id if isinstance(node.func, ast.Name) else "sorted"
                    self.site(node, f"Python's {name}", value.origin or node, test=node)
                return True
        return False

    def any_all(self, node: ast.Call) -> Value:
        value = self.of(node.args[0]) if node.args else PLAIN
        of = element(value)
        if of.kind == TENSOR_KIND:
            return read(node)
        if of.kind == READ_KIND:
            return of
        return PLAIN if of.kind != UNKNOWN_KIND else UNKNOWN

    def sum(self, node: ast.Call) -> Value:
        values = self.arguments(node)
        return element(values[0]) if values else PLAIN

    def sorted(self, node: ast.Call) -> Value:
        values = self.arguments(node)
        value = values[0] if values else UNKNOWN
        of = element(value)
        if not self.by_key(node, of) and of.kind == TENSOR_KIND:
            self.site(node, "Python's sorted", node, test=node)
        return items(of, value.origin, sized=value.sized)

    def range(self, node: ast.Call) -> Value:
        for argument in node.args:
            value = self.of(argument)
            if value.kind in _READ_KINDS:
                result = items(PLAIN, value.origin or argument, sized=True)
                result.suspected = value.suspected
                return result
        return items(PLAIN)

    def enumerate(self, node: ast.Call) -> Value:
        values = self.arguments(node)
        value = values[0] if values else UNKNOWN
        return items(Value(TUPLE, (PLAIN, element(value))), value.origin, sized=value.sized)

    def zip(self, node: ast.Call) -> Value:
        values = [self.of(argument) for argument in node.args]
        whole = [value for value in values if value.sized]
        by_value = bool(whole) and len(whole) == len(values)
        return items(Value(TUPLE, tuple(map(element, values))), whole[0].origin if whole else None, sized=by_value)

    def collection(self, node: ast.Call) -> Value:
        values = self.arguments(node)
        if not values:
            return items(NEVER, hashed=node.func.id in ("set", "frozenset"))
        of, hashed = element(values[0]), node.func.id in ("set", "frozenset")
        carried = carried_read(of, (READ_KIND,)) if hashed else None  # tensors differ by being other objects
        by_value = values[0].sized or carried is not None
        return items(of, values[0].origin or (carried.origin if carried else None), sized=by_value, hashed=hashed)

    def dictionary(self, node: ast.Call) -> Value:
        """dict(a=1, **others), dict(others)."""
        values = self.arguments(node)
        parts = dict(values[0].parts) if node.args and values[0].kind == MAPPING else {}
        if node.args and values[0].kind != MAPPING:
            pair = element(values[0])
            parts[ANY_KEY] = pair.parts[1] if pair.kind == TUPLE and len(pair.parts) == 2 else UNKNOWN
        for keyword, value in zip(node.keywords, values[len(node.args) :], strict=True):
            if keyword.arg is not None:
                parts[keyword.arg] = value
            elif value.kind == MAPPING:
                parts |= value.parts
        return mapping(parts)

    def same_items(self, node: ast.Call) -> Value:
        values = self.arguments(node)
        return values[0] if values else UNKNOWN

    def mapped(self, node: ast.Call) -> Value:
        values = self.arguments(node)
        if len(values) < 2:
            return UNKNOWN
        func, over = values[0], values[1]
        of = self.module.returned(func.parts, self, [], [element(over)]) if func.kind == FUNCTION else UNKNOWN
        if isinstance(node.args[0], ast.Name) and node.args[0].id in ("int", "float", "bool"):
            of = read(node) if element(over).kind in _READ_KINDS else PLAIN
        return items(of, over.origin, sized=over.sized)

    def filtered(self, node: ast.Call) -> Value:
        values = self.arguments(node)
        if len(values) < 2:
            return UNKNOWN
        func, over = values
        of = element(over)
        test = self.module.returned(func.parts, self, [], [of]) if func.kind == FUNCTION else of
        found = self.decides(test, node)
        if found is not None:
            self.site(node, "filter", found.origin or node, test=node)
            return items(of, found.origin or node, sized=True)
        return items(of, over.origin, sized=over.sized)

    def next(self, node: ast.Call) -> Value:
        values = self.arguments(node)
        return element(values[0]) if values else UNKNOWN

    def get_attribute(self, node: ast.Call) -> Value:
        values = self.arguments(node)
        if len(node.args) >= 2 and isinstance(node.args[1], ast.Constant) and values[0].kind == INSTANCE:
            found = self.instance_attribute(values[0], str(node.args[1].value))
            return join(found, values[2]) if len(values) > 2 else found
        return UNKNOWN

    def set_attribute(self, node: ast.Call) -> Value:
        values = self.arguments(node)
        if len(node.args) == 3 and isinstance(node.args[1], ast.Constant) and values[0].kind == INSTANCE:
            self.module.assigned(values[0].parts, str(node.args[1].value), values[2], self.record)
        return PLAIN

    def divided(self, node: ast.Call) -> Value:
        """divmod, pow."""
        value = joined(self.arguments(node))
        return Value(TUPLE, (value, value)) if node.func.id == "divmod" else value

    def plain(self, node: ast.Call) -> Value:
        self.arguments(node)
        return PLAIN


_MAKERS = frozenset(
    """tensor as_tensor from_numpy zeros ones empty full arange linspace logspace eye rand randn randint randperm
    tril_indices triu_indices zeros_like ones_like empty_like full_like rand_like randn_like randint_like stack cat
    concat concatenate hstack vstack complex polar sparse_coo_tensor hann_window normal scalar_tensor asarray
    frombuffer cartesian_prod block_diag einsum meshgrid broadcast_tensors bartlett_window blackman_window
    hamming_window kaiser_window empty_strided empty_permuted range from_file chain_matmul result_type vander
    atleast_1d atleast_2d atleast_3d""".split()
)
_OF_A_SIZE = frozenset("zeros ones empty arange range linspace eye rand randn randint randperm".split())
_ARRAY_SIZES = frozenset("nonzero flatnonzero argwhere unique compress extract trim_zeros union1d intersect1d".split())
# Parts of torch that are asked what is there: devices, versions, ranks.
_QUESTIONS = tuple(
    f"torch.{part}"
    for part in """cuda backends distributed compiler jit utils mps xpu random version _C amp fx profiler onnx overrides
    accelerator""".split()
)
_FROM_NUMBERS = frozenset("linspace logspace arange range eye hann_window kaiser_window hamming_window".split())

_BUILTINS = {
    **dict.fromkeys(("int", "float", "bool"), Calls.number),
    **dict.fromkeys(("max", "min"), Calls.extreme),
    **dict.fromkeys(("any", "all"), Calls.any_all),
    **dict.fromkeys(("list", "tuple", "set", "frozenset"), Calls.collection),
    **dict.fromkeys(("abs", "round", "reversed", "iter"), Calls.same_items),
    **dict.fromkeys(
        """isinstance issubclass hasattr callable type id str repr print ord chr hash format dir vars open input
        slice object staticmethod classmethod property memoryview bytes bytearray complex ValueError
        RuntimeError TypeError""".split(),
        Calls.plain,
    ),
    **dict.fromkeys(("divmod", "pow"), Calls.divided),
    "dict": Calls.dictionary,
    "len": Calls.length,
    "sum": Calls.sum,
    "sorted": Calls.sorted,
    "range": Calls.range,
    "enumerate": Calls.enumerate,
    "zip": Calls.zip,
    "map": Calls.mapped,
    "filter": Calls.filtered,
    "next": Calls.next,
    "getattr": Calls.get_attribute,
    "setattr": Calls.set_attribute,
}


def _asks(name: str) -> bool:
    """A question to torch itself: torch.get_num_threads, torch.is_warn_always_enabled."""
    return name.startswith(("get_", "set_", "is_", "are_", "_is_", "_get")) and name not in (
        "is_nonzero", "_is_all_true", "_is_any_true",
    )  # fmt: skip


def _is_bool(node: ast.expr) -> bool:
    """torch.bool, or bool."""
    return (isinstance(node, ast.Attribute) and node.attr == "bool") or (
        isinstance(node, ast.Name) and node.id == "bool"
    )


def _is_number(node: ast.expr) -> bool:
    """A dimension: -1, 1, dim, self.dim."""
    if isinstance(node, ast.UnaryOp):
        node = node.operand
    if isinstance(node, ast.Constant):
        return isinstance(node.value, int)
    name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
    return name in ("dim", "axis")
