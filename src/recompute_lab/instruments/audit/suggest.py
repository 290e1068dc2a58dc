"""What to write instead: an unconditional operation that is the identity where the condition would have been false."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from recompute_lab.instruments.audit.reading.guards import plain
from recompute_lab.instruments.audit.reading.records import Site
from recompute_lab.instruments.audit.reading.vocabulary import MASKS

_LONG = 80  # characters of an expression that is quoted
_CONDITION = "condition"

OUTSIDE = "check before the segment, or on the device: torch._assert_async(what must hold) reads nothing into Python"
COUNTED = "may stay if nothing downstream depends on it; a checkpoint counts twice, so count outside of the segment"
CLAMP = "if the condition holds exactly where something lies beyond the bounds: always {}; else torch.where"
NOTHING = "always apply it: where the condition would have skipped it, it should change nothing; else torch.where"
MOVED = "what is chosen decides further down: choose the result there with torch.where, not the setting here"
MORE = "compute both in the same shape and dtype, without effects of their own, and choose with torch.where"
TUPLE = "as many elements in both cases, each of them chosen with torch.where, which takes tensors only"
SIZE = "one size, whatever the values: keep all, and choose zeros with torch.where for what does not count"
ROUNDS = (
    "as many rounds, whatever the values: where one does not count, select no rows, or choose zeros with torch.where "
    "(0 times NaN is NaN)"
)
FILTER = "keep all elements, and choose zeros with torch.where for what the filter leaves out (0 times NaN is NaN)"
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
        if _is_none(value) or (other and _is_none(other[1])):
            return NOTHING
        if not orelse and _is_clamp(value, target):
            return CLAMP.format(f"{_text(target)} = {_short(value)}")
        chosen = _where(site, value, other[1] if other else target)
        return f"{_text(target)} = {chosen}" if chosen.startswith("torch.where") else chosen
    if body and isinstance(body[-1], ast.Return):
        if body[-1].value is None or _is_python_value(body[-1].value):
            return MOVED
        return f"no early exit: compute both results, and return {_where(site, 'this', 'that')}"
    if body and isinstance(body[-1], (ast.Break, ast.Continue)):
        return ROUNDS
    return f"do it always, and keep {_where(site, 'the result', 'what was there')}"


def _ternary(site: Site) -> str:
    body, orelse = (arm[0].value for arm in site.arms)
    none, other = (body, orelse) if _is_none(body) else (orelse, body)
    return NOTHING if _is_none(none) and not _is_no_tensor(other) else _where(site, body, orelse)


def _where(site: Site, first: ast.expr | str, second: ast.expr | str) -> str:
    """torch.where(...), with what a reader must know of it: the condition as a tensor, and both arms' gradients."""
    arms = [arm for arm in (first, second) if isinstance(arm, ast.expr)]
    if any(map(_is_tuple, arms)):
        return TUPLE
    if any(map(_is_no_tensor, arms)):
        return MOVED
    if any(map(_does_more, arms)):
        return MORE
    condition = _condition(site)
    said = f"torch.where({condition}, {_short(first, 'this')}, {_short(second, 'that')})"
    if condition == _CONDITION:
        said += ", the condition kept as a tensor"
    if isinstance(site.test, ast.BoolOp) and site.guards:
        said += f"; {site.guards[-1]} stays an if around it"
    if any(map(_may_overflow, arms)):
        said += "; where an arm that is not chosen may be inf or NaN, make its argument safe first: its gradient is NaN"
    return said


def _condition(site: Site) -> str:
    """The tensor in the condition, where the condition shows it; what settles it before stays an if."""
    test = site.test
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        left = [part for part in test.values if _text(plain(part)) not in site.guards]
        test = left[0] if len(left) == 1 else test
    if isinstance(test, ast.Call) and _name(test.func) == "bool" and test.args:
        test = test.args[0]
    elif isinstance(test, ast.Call) and _name(test.func) == "item" and isinstance(test.func, ast.Attribute):
        test = test.func.value
    read_elsewhere = site.origin is None or not test.lineno <= getattr(site.origin, "lineno", 0) <= test.end_lineno
    if read_elsewhere or any(map(_is_python, ast.walk(test))):
        return _CONDITION
    text = _short(test, _CONDITION)
    return text if text == _CONDITION or _is_boolean(test) else f"{text} != 0"


def _is_python(node: ast.AST) -> bool:
    """What makes the condition a Python value, which torch.where does not take."""
    if isinstance(node, (ast.BoolOp, ast.Not, ast.GeneratorExp, ast.In, ast.NotIn, ast.IfExp)):
        return True
    if isinstance(node, ast.Compare):
        return len(node.ops) > 1
    if isinstance(node, ast.Attribute):
        return node.attr == "shape" or (isinstance(node.value, ast.Name) and node.value.id in ("np", "numpy", "math"))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return node.func.id in ("int", "float", "bool", "len", "any", "all", "max", "min", "sum", "abs", "round")
    return isinstance(node, ast.Call) and _name(node.func) in (
        "item", "tolist", "equal", "allclose", "numel", "size", "numpy", "is_nonzero",
    )  # fmt: skip


def _is_boolean(node: ast.expr) -> bool:
    """A comparison, any, all, isnan: what torch.where takes as it is."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Invert):
        return _is_boolean(node.operand)
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, (ast.BitAnd, ast.BitOr, ast.BitXor)) and _is_boolean(node.left)
    return isinstance(node, ast.Compare) or (isinstance(node, ast.Call) and _name(node.func) in MASKS)


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _is_python_value(node: ast.expr) -> bool:
    """True, None, a text: what a caller asks with an `if`, and not with torch.where."""
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and (node.value is None or isinstance(node.value, (bool, str)))
    )


def _is_tuple(node: ast.expr) -> bool:
    """A tuple or a list, or one with more behind it."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _is_tuple(node.left) or _is_tuple(node.right)
    return isinstance(node, (ast.Tuple, ast.List))


def _is_no_tensor(node: ast.expr) -> bool:
    """A number, a text, a layer of the module's: torch.where takes none of them, or the branch only moves."""
    if isinstance(node, ast.UnaryOp):
        return _is_no_tensor(node.operand)
    return isinstance(node, (ast.Constant, ast.JoinedStr, ast.List, ast.Dict, ast.Tuple, ast.Attribute, ast.Lambda))


def _does_more(node: ast.expr) -> bool:
    """An arm with an effect of its own, or of another shape or dtype: to compute it always is to change the program."""
    for part in ast.walk(node):
        name = _name(part.func) if isinstance(part, ast.Call) else ""
        if (name.endswith("_") and not name.endswith("__")) or name in _MORE:
            return True
    return not _RESHAPES.isdisjoint(_outermost(node))


def _outermost(node: ast.expr) -> Iterator[str]:
    """The calls that give a value its shape, from the last one: x.abs().view(4) has view and abs. In `x * y.view(4)` it
    is not for view alone to say, nor in `x.masked_fill(mask.view(4), 0)`."""
    while isinstance(node, (ast.Call, ast.Attribute, ast.Subscript)):
        if not isinstance(node, ast.Call):
            if isinstance(node, ast.Subscript) and any(isinstance(part, ast.Slice) for part in ast.walk(node.slice)):
                yield "narrow"
            node = node.value
            continue
        yield _name(node.func)
        called = node.func.value if isinstance(node.func, ast.Attribute) else None
        of_a_module = called is None or _text(called) in ("torch", "F", "nn.functional", "torch.nn.functional")
        if of_a_module and not node.args:
            return
        node = node.args[0] if of_a_module else called


_MORE = frozenset(
    """
    float half double bfloat16 long int bool to type rand randn randint rand_like randn_like normal bernoulli
    multinomial dropout inv inverse cholesky solve""".split()
)
_RESHAPES = frozenset(
    """
    cat stack concat hstack vstack repeat expand pad unsqueeze squeeze flatten view reshape narrow split chunk transpose
    permute to_padded_tensor to_dense to_sparse""".split()
)


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
    "index": "go through all of them, and choose each result, or the rows it is for, with torch.where or a mask",
    "filter": FILTER,
    "and/or": "evaluate both sides before, and combine them with torch.where or the operators & and |",
    "Python's max": "torch.maximum, or a stacked tensor's amax: no comparison in Python",
    "Python's min": "torch.minimum, or a stacked tensor's amin: no comparison in Python",
    "Python's sorted": "torch.sort: no comparison in Python",
}
