"""A condition as a person would write it."""

from __future__ import annotations

import ast

_OPPOSITE = {
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.In: ast.NotIn, ast.NotIn: ast.In
}  # fmt: skip


def plain(node: ast.expr) -> ast.expr:
    """`x` for `not not x`, `x is not None` for `not x is None`, `a == b` for `not a != b`; all else as it is.

    `not a < b` stays: for a NaN it is not `a >= b`.
    """
    if not (isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)):
        return node
    inner = node.operand
    if isinstance(inner, ast.UnaryOp) and isinstance(inner.op, ast.Not):
        return plain(inner.operand)
    if isinstance(inner, ast.Compare) and len(inner.ops) == 1 and type(inner.ops[0]) in _OPPOSITE:
        return ast.Compare(inner.left, [_OPPOSITE[type(inner.ops[0])]()], inner.comparators)
    return node
