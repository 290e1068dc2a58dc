"""What an annotation says of a value's kind. Nothing is imported: names are taken for what they say."""

from __future__ import annotations

import ast

from recompute_lab.instruments.audit.reading import vocabulary as words
from recompute_lab.instruments.audit.reading.kinds import (
    ANY_KEY,
    MASK,
    PLAIN,
    PLAIN_KIND,
    TENSOR,
    TUPLE,
    UNKNOWN,
    Value,
    items,
    mapping,
)


def kind_of(node: ast.expr | None, depth: int = 0) -> Value | None:
    """None where there is no annotation; unknown where it names something else, or several kinds."""
    if node is None:
        return None
    if depth > 8:
        return UNKNOWN
    if isinstance(node, ast.Constant):
        if isinstance(node.value, str):
            try:
                return kind_of(ast.parse(node.value, mode="eval").body, depth + 1)
            except (SyntaxError, ValueError, RecursionError, MemoryError):
                return UNKNOWN
        return PLAIN  # None
    name = _last_name(node)
    if name is not None:
        return _named(name)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return _union([kind_of(node.left, depth + 1), kind_of(node.right, depth + 1)])
    if isinstance(node, ast.Subscript):
        outer = _last_name(node.value)
        inside = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if outer in words.OPTIONAL_TYPES:
            return _union([kind_of(part, depth + 1) for part in inside[: 1 if outer == "Annotated" else None]])
        if outer in words.LIST_TYPES:
            of = [kind_of(part, depth + 1) or UNKNOWN for part in inside if not _is_dots(part)]
            if outer in ("tuple", "Tuple") and not any(map(_is_dots, inside)):
                return Value(TUPLE, tuple(of))
            return items(of[0] if len(of) == 1 else UNKNOWN, hashed=outer in words.SET_TYPES)
        if outer in words.DICT_TYPES and len(inside) == 2:
            return mapping({ANY_KEY: kind_of(inside[1], depth + 1) or UNKNOWN})
        return _named(outer) if outer else UNKNOWN
    return UNKNOWN


def _named(name: str) -> Value:
    if name in words.TENSOR_TYPES:
        return MASK if name in words.MASK_TYPES else TENSOR
    if name in words.PLAIN_TYPES or name.endswith("Config"):
        return PLAIN
    if name in words.LIST_TYPES:
        return items(UNKNOWN, hashed=name in words.SET_TYPES)
    return UNKNOWN


def _union(values: list[Value | None]) -> Value:
    """None beside something else says no more than that it may be missing; a number or a tensor may be either."""
    kinds = [value for value in values if value is not None and value is not PLAIN]
    plain = sum(value is PLAIN for value in values)
    if not kinds:
        return PLAIN
    if len(kinds) > 1:
        tensors = [value for value in kinds if value.kind == TENSOR.kind]
        return tensors[0] if len(tensors) == len(kinds) else UNKNOWN
    # Optional[Tensor] is written with None, which is plain as well: one plain part beside a tensor is taken for it.
    return kinds[0] if plain <= 1 or kinds[0].kind != PLAIN_KIND else UNKNOWN


def _last_name(node: ast.expr) -> str | None:
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else None


def _is_dots(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is Ellipsis
