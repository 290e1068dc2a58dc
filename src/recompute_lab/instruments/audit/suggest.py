"""What to write instead: an unconditional operation that is the identity where the condition would have been false."""

from __future__ import annotations

import ast
from collections.abc import Callable

from recompute_lab.instruments.audit.records import Site

_LONG = 80  # characters of an expression that is quoted
_CONDITION = "condition"

OUTSIDE = "check before the segment, or on the device: torch._assert_async(condition) reads nothing into Python"
COUNTED = "may stay if nothing downstream depends on it; a checkpoint counts twice, so count outside of the segment"
SIZE = "a size that no value decides: keep all elements, and weigh with zero, or torch.where, what does not count"
ROUNDS = "rounds that no value decides: run over all of them, and weigh with zero, or torch.where, what does not count"
TWO_WRITES = "move it out of the segment, or make the second write do nothing (repairs.idempotent, repairs.suppress)"
SAME_WRITE = "harmless only if both passes write the same; else move it out, or suppress it in the recomputation"


def suggestion(site: Site, decides: str) -> str:
    """One line. It quotes the source where that is short, and names the operation where it is not."""
    if site.rule == "lasting-write":
        return SAME_WRITE if site.form == "assign" else TWO_WRITES
    if decides == "shape":
        return SIZE
    if decides == "raise":
        return OUTSIDE
    if decides == "telemetry":
        return COUNTED
    how = _BY_FORM.get(site.form)
    return how(site) if callable(how) else how or "compute all the cases, and choose with torch.where"


def _if(site: Site) -> str:
    body, orelse = site.arms
    assigned, other = _assignment(body), _assignment(orelse)
    if assigned is not None and (not orelse or (other is not None and _text(other[0]) == _text(assigned[0]))):
        target, value = assigned
        if not orelse and _is_clamp(value, target):
            return f"always {_text(target)} = {_short(value)}: a clamp is the identity within its bounds"
        scale = _scale(value, target) if not orelse else None
        if scale is not None:
            return f"always multiply: {_text(target)} = {_text(target)} * {_where(site, scale, '1.0')}"
        return f"{_text(target)} = {_where(site, value, other[1] if other else target)}"
    if body and isinstance(body[-1], ast.Return):
        return f"no early exit: compute both results, and return {_where(site, 'this', 'that')}"
    if body and isinstance(body[-1], (ast.Break, ast.Continue)):
        return ROUNDS
    return f"do it always, and keep {_where(site, 'the result', 'what was there')}"


def _ternary(site: Site) -> str:
    body, orelse = (arm[0].value for arm in site.arms)
    return _where(site, body, orelse)


def _where(site: Site, first: ast.expr | str, second: ast.expr | str) -> str:
    """torch.where(...), with what a reader must know of it: the condition as a tensor, and both arms' gradients."""
    condition = _condition(site)
    said = f"torch.where({condition}, {_short(first)}, {_short(second)})"
    if condition == _CONDITION:
        said += ", the condition kept as a tensor"
    if any(isinstance(arm, ast.expr) and _may_overflow(arm) for arm in (first, second)):
        said += "; where an arm that is not chosen may be inf or NaN, make its argument safe first: its gradient is NaN"
    return said


def _condition(site: Site) -> str:
    """The tensor in the condition, where the condition shows it; what settles it before stays an if."""
    test = site.test
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        left = [part for part in test.values if _text(part) not in site.guards]
        test = left[0] if len(left) == 1 else test
    while isinstance(test, ast.Call) and _name(test.func) in ("bool", "item"):
        test = test.args[0] if test.args else getattr(test.func, "value", test)
        if test is getattr(test, "func", None):
            break
    read_elsewhere = site.origin is None or not test.lineno <= getattr(site.origin, "lineno", 0) <= test.end_lineno
    if read_elsewhere or any(_is_python(part) for part in ast.walk(test)):
        return _CONDITION
    return _short(test, _CONDITION)


def _is_python(node: ast.AST) -> bool:
    """What makes the condition a Python value, which torch.where does not take."""
    if isinstance(node, (ast.BoolOp, ast.Not, ast.GeneratorExp, ast.In, ast.NotIn)):
        return True
    if isinstance(node, ast.Attribute) and node.attr == "shape":
        return True
    return isinstance(node, ast.Call) and _name(node.func) in (
        "int", "float", "bool", "len", "item", "tolist", "equal", "allclose", "numel", "size", "numpy",
        "is_nonzero",
    )  # fmt: skip


def _may_overflow(node: ast.expr) -> bool:
    risky = ("exp", "log", "log1p", "sqrt", "rsqrt", "pow", "reciprocal", "acos", "asin", "norm", "div", "softmax")
    return any(
        (isinstance(part, ast.BinOp) and isinstance(part.op, (ast.Div, ast.Pow)))
        or (isinstance(part, ast.Call) and _name(part.func) in risky)
        for part in ast.walk(node)
    )


def _assignment(body: list[ast.stmt]) -> tuple[ast.expr, ast.expr] | None:
    """`x = value` or `x *= value`, if that is all."""
    if len(body) != 1:
        return None
    node = body[0]
    if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
        return node.targets[0], node.value
    if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
        return node.target, ast.BinOp(node.target, node.op, node.value)
    return None


def _is_clamp(value: ast.expr, target: ast.expr) -> bool:
    return (
        isinstance(value, ast.Call)
        and _name(value.func) in ("clamp", "clip", "clamp_min", "clamp_max", "clamp_")
        and isinstance(value.func, ast.Attribute)
        and _text(target) in (_text(value.func.value), *(_text(a) for a in value.args[:1]))
    )


def _scale(value: ast.expr, target: ast.expr) -> ast.expr | None:
    """The other factor in `x * scale`."""
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Mult):
        for one, other in ((value.left, value.right), (value.right, value.left)):
            if _text(one) == _text(target):
                return other
    return None


def _name(func: ast.expr) -> str:
    return func.id if isinstance(func, ast.Name) else getattr(func, "attr", "")


def _text(node: ast.expr) -> str:
    return ast.unparse(node)


def _short(node: ast.expr | str, instead: str = "...") -> str:
    text = node if isinstance(node, str) else ast.unparse(node)
    return text if len(text) <= _LONG and "\n" not in text else instead


_BY_FORM: dict[str, str | Callable[[Site], str]] = {
    "if": _if,
    "ternary": _ternary,
    "for": ROUNDS,
    "while": "a fixed number of rounds, each kept with torch.where only while the condition holds",
    "index": "compute all of them, and choose with torch.where, torch.gather or a one-hot product",
    "filter": "keep all elements, and weigh with zero what the filter leaves out",
    "and/or": "evaluate both sides before, and combine them with torch.where or the operators & and |",
    "Python's max": "torch.maximum, or a stacked tensor's amax: no comparison in Python",
    "Python's min": "torch.minimum, or a stacked tensor's amin: no comparison in Python",
    "Python's sorted": "torch.sort: no comparison in Python",
}
