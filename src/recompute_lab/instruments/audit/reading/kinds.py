"""What the audit knows of a value without running anything: its kind.

A kind says what a decision on the value would mean: a tensor's truth is a read, a number that was
read from a tensor carries the read along, a plain Python or NumPy value is settled without one.
"""

from __future__ import annotations

import ast
from typing import Any

UNKNOWN_KIND, PLAIN_KIND, TENSOR_KIND, READ_KIND = "unknown", "plain", "tensor", "read"
ITEMS, TUPLE, MAPPING = "items", "tuple", "mapping"  # of values of one kind, by position, by key
_DEEPEST = 5  # of containers in containers; what lies deeper is unknown
ANY_KEY = ...  # under which a mapping has what its other keys hold
FUNCTION, CLASS, INSTANCE, LAYER, MODULE, EXTERNAL = "function", "class", "instance", "layer", "module", "external"


class Value:
    """A kind, with what it is made of.

    `parts`: an element (items), elements (tuple), a dict (mapping), a function's or class's record, a dotted name.
    `origin`: the syntax node where a tensor's value was read, or where a size came to depend on one.
    `sized`: the size (of a tensor, a list) depends on a tensor's value. `mask`: a tensor of booleans, as far as known.
    `suspected`: it is a tensor's value by circumstance only. `partial`: a function that has some arguments already.
    `hashed`: a set, where a tensor is found by being the same object, and no value is read.
    """

    __slots__ = ("depth", "hashed", "kind", "mask", "origin", "parts", "partial", "sized", "suspected")

    def __init__(self, kind: str, parts: Any = None, origin: ast.AST | None = None, *, sized=False, mask=False):
        self.kind, self.parts, self.origin = kind, parts, origin
        self.sized, self.mask, self.suspected, self.partial, self.hashed = sized, mask, False, False, False
        self.depth = 0
        if kind in (ITEMS, TUPLE, MAPPING):
            inner = (parts,) if kind == ITEMS else parts if kind == TUPLE else parts.values()
            self.depth = 1 + max((value.depth for value in inner), default=0)
            if self.depth > _DEEPEST:
                self.kind, self.parts = UNKNOWN_KIND, None

    def __repr__(self) -> str:
        return f"{self.kind}{'*' if self.sized else ''}"


UNKNOWN, PLAIN, TENSOR = Value(UNKNOWN_KIND), Value(PLAIN_KIND), Value(TENSOR_KIND)
MASK = Value(TENSOR_KIND, mask=True)
SUSPECTED = Value(TENSOR_KIND)  # what has a method that NumPy's arrays and many others have as well
SUSPECTED.suspected = True
NEVER = Value("never")  # the element of an empty list

_RANK = {
    "never": 0, PLAIN_KIND: 1, MODULE: 2, CLASS: 3, FUNCTION: 4, LAYER: 5, EXTERNAL: 5, INSTANCE: 6,
    UNKNOWN_KIND: 7, ITEMS: 8, TUPLE: 8, MAPPING: 8, TENSOR_KIND: 9, READ_KIND: 10,
}  # fmt: skip


def read(origin: ast.AST | None) -> Value:
    return Value(READ_KIND, None, origin)


def sized(origin: ast.AST | None) -> Value:
    """A tensor whose size depends on a tensor's value."""
    return Value(TENSOR_KIND, None, origin, sized=True)


def items(element: Value, origin: ast.AST | None = None, *, sized: bool = False, hashed: bool = False) -> Value:
    value = Value(ITEMS, element, origin, sized=sized)
    value.hashed = hashed
    return value


def mapping(parts: dict, origin: ast.AST | None = None, *, sized: bool = False) -> Value:
    return Value(MAPPING, parts, origin, sized=sized)


def at_key(value: Value, key: Any = ANY_KEY) -> Value:
    """What a mapping holds under a constant key; under a key that is not known, anything that it holds."""
    if key is ANY_KEY:
        return joined(value.parts.values()) if value.parts else UNKNOWN
    return value.parts.get(key) or value.parts.get(ANY_KEY, UNKNOWN)


def element(value: Value) -> Value:
    """What iterating over the value gives."""
    if value.kind == ITEMS:
        return value.parts
    if value.kind == TUPLE:
        return joined(value.parts)
    if value.kind == TENSOR_KIND:
        return MASK if value.mask else TENSOR
    if value.kind in (READ_KIND, PLAIN_KIND):
        return value
    if value.kind == MAPPING:
        return PLAIN
    return UNKNOWN


def carried_read(value: Value, kinds: tuple[str, ...] = (READ_KIND, TENSOR_KIND)) -> Value | None:
    """What was read from a tensor in a value, or in one of its parts; a tensor is read where it is compared."""
    if value.kind in kinds:
        return value
    parts = value.parts if value.kind == TUPLE else (value.parts,) if value.kind == ITEMS else ()
    return next(filter(None, (carried_read(part, kinds) for part in parts)), None)


def joined(values) -> Value:
    found = NEVER
    for value in values:
        found = join(found, value)
    return found


def join(a: Value, b: Value) -> Value:
    """What a name may be after two ways to reach a line: where one of them read a tensor, it may have been read."""
    if a is b:
        return a
    if a.kind != b.kind:
        return a if _RANK[a.kind] > _RANK[b.kind] else b
    if a.kind == TENSOR_KIND:
        return a if a.sized or (not b.sized and not a.mask) else b
    if a.kind == ITEMS:
        of = join(a.parts, b.parts)
        if of is a.parts and a.sized >= b.sized and a.hashed <= b.hashed:
            return a
        if of is b.parts and b.sized >= a.sized and b.hashed <= a.hashed:
            return b
        return items(of, a.origin or b.origin, sized=a.sized or b.sized, hashed=a.hashed and b.hashed)
    if a.kind == TUPLE:
        longer = max(a.parts, b.parts, key=len)  # of outputs that may have more parts the first ones are known
        parts = tuple(map(join, a.parts, b.parts)) + longer[min(len(a.parts), len(b.parts)) :]
        return a if len(parts) == len(a.parts) and all(map(_is, parts, a.parts)) else Value(TUPLE, parts)
    if a.kind == MAPPING:
        parts = dict(a.parts)
        for key, value in b.parts.items():
            parts[key] = join(parts[key], value) if key in parts else value
        return Value(MAPPING, parts, a.origin or b.origin, sized=a.sized or b.sized)
    if a.kind == READ_KIND or a.parts == b.parts:
        return a
    if a.kind in (LAYER, INSTANCE):
        return Value(LAYER, "")  # one layer or another
    if a.kind in (FUNCTION, MODULE):
        return a  # one function or another: that there is a choice is what matters
    return UNKNOWN if a.kind != PLAIN_KIND else a


def _is(a: object, b: object) -> bool:
    return a is b


def same(a: Value, b: Value) -> bool:
    """True where nothing could be decided differently on the two."""
    if a is b:
        return True
    if a.kind != b.kind or a.sized != b.sized:
        return False
    if a.kind == ITEMS:
        return same(a.parts, b.parts)
    if a.kind == TUPLE:
        return len(a.parts) == len(b.parts) and all(map(same, a.parts, b.parts))
    if a.kind == MAPPING:
        return a.parts.keys() == b.parts.keys() and all(same(v, b.parts[k]) for k, v in a.parts.items())
    return True
