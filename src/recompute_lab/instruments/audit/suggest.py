"""What to write instead: an unconditional operation that is the identity where the condition would have been false."""

from __future__ import annotations

import ast

from recompute_lab.instruments.audit.records import Site

_LONG = 90  # characters of a suggested expression


def suggestion(site: Site, decides: str) -> str:
    if site.rule == "lasting-write":
        return _for_write(site)
    if decides == "raise":
        return "check before the segment is entered, or on the device: torch._assert_async(condition) reads nothing into Python"
    if decides == "telemetry":
        return "may stay if nothing downstream depends on it; under a checkpoint it is counted twice, so count outside"
    return _BY_FORM.get(site.form, _choose)(site)


def _if(site: Site) -> str:
    body, orelse = site.arms
    test = _condition(site)
    assigned = _assignment(body)
    if assigned is not None and (not orelse or _assignment(orelse) is not None):
        target, value = assigned
        other = _assignment(orelse) if orelse else (target, target)
        if ast.unparse(other[0]) == ast.unparse(target):
            if not orelse and _is_clamp(value, target):
                return f"always {_short(target)} = {_short(value)}: a clamp is the identity where nothing lies beyond the bound"
            scale = _scale(value, target) if not orelse else None
            if scale is not None:
                return (
                    f"{_short(target)} = {_short(target)} * torch.where({test}, {_short(scale)}, 1.0): always multiply"
                )
            return f"{_short(target)} = torch.where({test}, {_short(value)}, {_short(other[1])})"
    if body and isinstance(body[-1], ast.Return):
        return f"no early exit: compute both results and return torch.where({test}, this, that)"
    if body and isinstance(body[-1], (ast.Break, ast.Continue)):
        return (
            "a fixed number of rounds: keep each round's result with torch.where, multiply by zero what does not count"
        )
    return f"do it always, and keep the result with torch.where({test}, with it, without it)"


def _ternary(site: Site) -> str:
    body, orelse = (arm[0].value for arm in site.arms)
    return f"torch.where({_condition(site)}, {_short(body)}, {_short(orelse)})"


def _for(site: Site) -> str:
    return (
        "a number of rounds that no value decides: run over all of them, "
        "and weigh with zero (or torch.where) what does not count"
    )


def _while(site: Site) -> str:
    return "a fixed number of rounds, each kept with torch.where only while the condition holds"


def _choose(site: Site) -> str:
    return "compute all the cases and choose with torch.where"


def _index(site: Site) -> str:
    return "compute all of them, and choose with torch.where, torch.gather or a one-hot product"


def _filter(site: Site) -> str:
    return "keep all elements, and weigh with zero what the filter leaves out"


def _and_or(site: Site) -> str:
    return "evaluate both sides before, and combine them with torch.where or the operators & and |"


def _builtin(name: str) -> str:
    return {
        "Python's max": "torch.maximum, or a stacked tensor's amax: no comparison in Python",
        "Python's min": "torch.minimum, or a stacked tensor's amin: no comparison in Python",
        "Python's sorted": "torch.sort: no comparison in Python",
    }[name]


def _for_write(site: Site) -> str:
    if site.form in ("add", "container"):
        return "move it out of the segment, or make the second write do nothing: recompute_lab.repairs (idempotent, suppress)"
    return "harmless only if both passes write the same; else move it out of the segment, or suppress it in the recomputation"


_BY_FORM = {
    "if": _if,
    "ternary": _ternary,
    "for": _for,
    "while": _while,
    "match": _choose,
    "index": _index,
    "filter": _filter,
    "and/or": _and_or,
    **{name: (lambda site: _builtin(site.form)) for name in ("Python's max", "Python's min", "Python's sorted")},
}


def _condition(site: Site) -> str:
    """The part of the condition that is a tensor's; what settles it before stays an if."""
    test = site.test
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        left = [part for part in test.values if ast.unparse(part) not in site.guards]
        test = left[0] if len(left) == 1 else test
    if isinstance(test, ast.Call) and isinstance(test.func, ast.Name) and test.func.id == "bool" and test.args:
        test = test.args[0]
    text = ast.unparse(test)
    return text if len(text) <= _LONG else "condition"


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
        and isinstance(value.func, ast.Attribute)
        and value.func.attr in ("clamp", "clip", "clamp_min", "clamp_max", "clamp_")
        and ast.unparse(target) in (ast.unparse(value.func.value), *(ast.unparse(a) for a in value.args[:1]))
    )


def _scale(value: ast.expr, target: ast.expr) -> ast.expr | None:
    """The other factor in `x * scale`."""
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Mult):
        for one, other in ((value.left, value.right), (value.right, value.left)):
            if ast.unparse(one) == ast.unparse(target):
                return other
    return None


def _short(node: ast.expr) -> str:
    text = ast.unparse(node)
    return text if len(text) <= _LONG else "..."
