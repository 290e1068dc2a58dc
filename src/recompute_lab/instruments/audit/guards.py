"""A guard as a person would write it."""

from __future__ import annotations

import ast

_OPPOSITE = {
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.In: ast.NotIn, ast.NotIn: ast.In
}  # fmt: skip


def plainly(guard: str) -> str:
    """`x is not None` for `not x is None`, `a == b` for `not a != b`; all else as it is.

    `not a < b` stays: for a NaN it is not `a >= b`.
    """
    try:
        node = ast.parse(guard, mode="eval").body
    except (SyntaxError, RecursionError, MemoryError):
        return guard
    if not (isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not) and isinstance(node.operand, ast.Compare)):
        return guard
    compared = node.operand
    if len(compared.ops) != 1 or type(compared.ops[0]) not in _OPPOSITE:
        return guard
    return ast.unparse(ast.Compare(compared.left, [_OPPOSITE[type(compared.ops[0])]()], compared.comparators))
