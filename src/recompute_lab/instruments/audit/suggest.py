"""What to write instead: an unconditional operation that is the identity where the condition would have been false."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from recompute_lab.instruments.audit.conditions import CONDITION, condition, opposite, read_before, rewritten
from recompute_lab.instruments.audit.reading.records import Site

_LONG = 80  # characters of an expression that is quoted

OUTSIDE = "check before the segment, or on the device: torch._assert_async({}){} reads nothing into Python"
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
BREAK = (
    "no break: go on to the last round, and from the one on where {} holds keep what was there: "
    "torch.where(ended, old, new), with ended = ended | that, a tensor"
)
CONTINUE = "no continue: compute each round, and keep what was there by torch.where({}, old, new)"
FILTER = "keep all elements, and choose zeros with torch.where for what the filter leaves out (0 times NaN is NaN)"
RECURSION = (
    "as many levels as there can be at most: a loop over range(most), "
    "each round kept with torch.where(goes on, new, old)"
)
EACH = "its elements one by one, each torch.where({}, the new one, the old one)"
NUMBERS = (
    "outside of a checkpoint it may stay; inside, a second pass decides again: move it out, or keep tensors, {} = "
    "torch.where({}, the new one, {})"
)
CHOOSE = "go through all of them, and choose each result, or the rows it is for, with torch.where or a mask"
TWO_WRITES = "move it out of the segment, or make the second write do nothing (repairs.idempotent, repairs.suppress)"
SAME_WRITE = "harmless only if both passes write the same; else move it out, or suppress it in the recomputation"


def suggestion(site: Site, decides: str) -> str:
    """One line. It quotes the source where that is short, and names the operation where it is not."""
    if site.rule == "lasting-write":
        return SAME_WRITE if site.form == "assign" else TWO_WRITES
    if decides == "shape":
        return SIZE
    if decides == "raise":
        return _raise(site)
    if decides == "telemetry":
        return COUNTED
    how = _BY_FORM.get(site.form)
    return how(site) if callable(how) else how or "compute all the cases, and choose with torch.where"


def _if(site: Site) -> str:
    body, orelse = site.arms
    assigned, other = _assignment(body), _assignment(orelse)
    if other is not None and all(isinstance(node, ast.Pass) for node in body):
        chosen = _where(site, other[0], other[1])
        return f"{_text(other[0])} = {chosen}" if chosen.startswith("torch.where") else chosen
    if assigned is not None and (not orelse or (other is not None and _text(other[0]) == _text(assigned[0]))):
        target, value = assigned
        if _is_none(value) or (other and _is_none(other[1])):
            return NOTHING
        if not orelse and _is_clamp(value, target):
            return CLAMP.format(f"{_text(target)} = {_short(value)}")
        chosen = _where(site, value, other[1] if other else target)
        return f"{_text(target)} = {chosen}" if chosen.startswith("torch.where") else chosen
    if body and isinstance(body[-1], ast.Return):
        return _early_exit(site)
    if body and isinstance(body[-1], (ast.Break, ast.Continue)):
        said, note = condition(site)
        return (BREAK if isinstance(body[-1], ast.Break) else CONTINUE).format(said) + note
    return _always(site)


def _raise(site: Site) -> str:
    """`assert what` and `if not what: raise`: what must hold."""
    said, note = condition(site)
    if said == CONDITION:
        return OUTSIDE.format("what must hold", "")
    return OUTSIDE.format(said if isinstance(site.node, ast.Assert) else opposite(said), note + "," if note else "")


def _early_exit(site: Site) -> str:
    """`if condition: return this`, and what is returned otherwise, if that is the next line."""
    body, orelse = site.arms
    value = body[-1].value
    if value is None or _is_python_value(value):
        return MOVED
    rest = orelse or site.function.following(site.node)
    last = next((at for at, node in enumerate(rest) if isinstance(node, ast.Return)), len(rest))
    rest = rest[: last + 1]
    other = rest[0].value if len(rest) == 1 and isinstance(rest[0], ast.Return) and rest[0].value else None
    if len(body) == 1 and other is not None and not _is_python_value(other):
        said = _where(site, value, other)
        return f"return {said}" if said.startswith("torch.where") else said
    this = value if len(body) == 1 else "what it returns here"
    said = _where(site, this, "what it returns below")
    if not said.startswith("torch.where"):
        return said
    return f"no early exit: compute the rest as well, and at its end return {said}"


def _always(site: Site) -> str:
    """Several statements behind the condition, or one that is no plain assignment: what each of them leaves."""
    body = site.arms[0]
    said, note = condition(site)
    for node in body:
        call = node.value if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) else None
        if call is not None and isinstance(call.func, ast.Attribute) and _is_in_place(call.func.attr):
            on, name = _text(call.func.value), call.func.attr
            plain = _text(call.args[0]) if name == "copy_" and call.args else None
            if plain is None:
                made = ast.Call(ast.Attribute(call.func.value, name[:-1]), call.args, call.keywords)
                plain = (
                    f"torch.full_like({on}, {_text(call.args[0])})" if name == "fill_" and call.args else _text(made)
                )
                plain = f"torch.zeros_like({on})" if name == "zero_" else plain
            if len(on) + len(plain) <= _LONG:
                more = "; so each of the others" if len(body) > 1 else ""
                return f"always {on}.copy_(torch.where({said}, {plain}, {on})){note}{more}"
    stored = _stored(body)
    used = {
        part.id for one in site.function.following(site.node) for part in ast.walk(one) if isinstance(part, ast.Name)
    }
    stored = [name for name in stored if name in used or not name.isidentifier()] or stored
    if not stored:
        return f"always do it, so that it changes nothing where {said} does not hold{note}; else move it out"
    first = stored[0]
    if all(isinstance(node, (ast.Assign, ast.AugAssign)) and _is_number(node.value) for node in body):
        return NUMBERS.format(first, said, first) + note
    names = " and ".join(filter(None, [", ".join(stored[:3][:-1]), stored[:3][-1]])) if len(stored) > 1 else first
    example = f"{first} = torch.where({said}, the new {first}, the old one)"
    return f"compute always what it leaves in {names}, and choose: {example}{note}"


def _stored(body: list[ast.stmt]) -> list[str]:
    """The names and attributes that the statements assign; what can be a tensor first, counts and lists behind."""
    found: dict[str, bool] = {}
    for node in body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if not isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign)):
            targets = []
        for target in targets:
            for part in target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]:
                text = _text(part)
                if text != "_" and len(text) <= _LONG // 2:
                    found.setdefault(text, _is_number(node.value) or _is_list(node.value))
    return sorted(found, key=found.get)


def _is_list(node: ast.expr) -> bool:
    return isinstance(node, (ast.List, ast.Tuple, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp))


def _is_in_place(name: str) -> bool:
    return name.endswith("_") and not name.endswith("__") and name not in ("requires_grad_", "_")


def _while(site: Site) -> str:
    said, note = condition(site)
    stored = [name for name in _stored(site.arms[0]) if name.isidentifier()]
    read = {part.id for part in ast.walk(site.test) if isinstance(part, ast.Name)}
    name = next((one for one in stored[:1] + stored if one in read), stored[0] if stored else "x")
    return (
        f"as many rounds as there can be at most, `for _ in range(most)`, each of them: {name} = "
        f"torch.where({said}, the next {name}, {name}){note}"
    )


def _for(site: Site) -> str:
    """`for i in range(int(n))`; other loops select rows."""
    over, loop = site.test, site.node
    if isinstance(over, ast.Call) and _name(over.func) == "range" and len(over.args) == 1 and isinstance(loop, ast.For):
        count = rewritten(over.args[0])
        if count is not None and len(count) <= _LONG and isinstance(loop.target, ast.Name):
            at = "i" if loop.target.id == "_" else loop.target.id
            read_here = any(node is site.origin for node in ast.walk(over.args[0]))
            if read_here:
                return (
                    f"as many rounds as there can be at most, `for {at} in range(most)`, each of them kept by "
                    f"torch.where({at} < {count}, new, old)"
                )
    return ROUNDS


def _index(site: Site) -> str:
    node = site.node
    base, at = (node.value, node.slice) if isinstance(node, ast.Subscript) else (None, None)
    said = rewritten(at) if at is not None and not isinstance(at, ast.Slice) else None
    note = read_before(site, at) if said is not None else None
    if note is None or base is None or said is None or len(said) + len(_text(base)) > _LONG:
        return CHOOSE
    chosen = f"torch.where({said} == its place or key, its result, the others')"
    return f"go through all of {_text(base)}, and choose: {chosen}{note}"


def _filter(site: Site) -> str:
    node = site.node
    if isinstance(node, (ast.ListComp, ast.GeneratorExp)) and not _is_tuple(node.elt) and len(node.generators) == 1:
        read_here = any(part is site.origin for part in ast.walk(site.test))
        said, element = rewritten(site.test, boolean=True) if read_here else None, _text(node.elt)
        if said is not None and len(said) + len(element) <= _LONG:
            return f"keep all elements, each as torch.where({said}, {element}, 0.0) (0 times NaN is NaN)"
    return FILTER


def _and_or(site: Site) -> str:
    node = site.test
    if isinstance(node, ast.BoolOp) and len(node.values) == 2:
        first, second = map(rewritten, node.values)
        hit = rewritten(node.values[0], boolean=True)
        if first and second and len(first) + len(second) + len(hit) <= _LONG:
            arms = (first, second) if isinstance(node.op, ast.Or) else (second, first)
            return f"evaluate both sides: torch.where({hit}, {', '.join(arms)})"
    return "evaluate both sides before, and combine them with torch.where or the operators & and |"


def _match(site: Site) -> str:
    plain = isinstance(site.node, ast.Match) and not isinstance(site.test, ast.Tuple)
    said = rewritten(site.test) if plain else None
    if said is None or len(said) > _LONG:
        return "compute all the cases, and choose with torch.where"
    return f"compute all the cases, and choose: torch.where({said} == the case's value, its result, the others')"


def _ternary(site: Site) -> str:
    body, orelse = (arm[0].value for arm in site.arms)
    none, other = (body, orelse) if _is_none(body) else (orelse, body)
    return NOTHING if _is_none(none) and not _is_no_tensor(other) else _where(site, body, orelse)


def _where(site: Site, first: ast.expr | str, second: ast.expr | str) -> str:
    """torch.where(...), with what a reader must know of it: the condition as a tensor, and both arms' gradients."""
    arms = [arm for arm in (first, second) if isinstance(arm, ast.expr)]
    if any(map(_is_tuple, arms)):
        return TUPLE
    name = site.function.name.rpartition(".")[2]
    if any(isinstance(part, ast.Call) and _name(part.func) == name for arm in arms for part in ast.walk(arm)):
        return RECURSION
    if any(map(_is_no_tensor, arms)) and not any(isinstance(arm, ast.Dict) for arm in arms):
        return MOVED
    if any(map(_does_more, arms)):
        return MORE
    when, note = condition(site)
    if any(isinstance(arm, (ast.ListComp, ast.DictComp, ast.Dict)) for arm in arms):
        return EACH.format(when) + note
    said = f"torch.where({when}, {_short(first, 'this')}, {_short(second, 'that')}){note}"
    if isinstance(site.test, ast.BoolOp) and site.guards:
        said += f"; {site.guards[-1]} stays an if around it"
    if any(map(_may_overflow, arms)):
        said += "; where an arm that is not chosen may be inf or NaN, make its argument safe first: its gradient is NaN"
    return said


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _is_python_value(node: ast.expr) -> bool:
    """True, None, a text: what a caller asks with an `if`, and not with torch.where."""
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and (node.value is None or isinstance(node.value, (bool, str)))
    )


def _is_number(node: ast.expr) -> bool:
    """A constant, or what was read out of a tensor."""
    if isinstance(node, ast.UnaryOp):
        return _is_number(node.operand)
    return isinstance(node, (ast.Constant, ast.Name)) or (isinstance(node, ast.Call) and _name(node.func) == "item")


def _is_tuple(node: ast.expr) -> bool:
    """A tuple or a list, or one with more behind it."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _is_tuple(node.left) or _is_tuple(node.right)
    return isinstance(node, (ast.Tuple, ast.List))


def _is_no_tensor(node: ast.expr) -> bool:
    """A number, a text, a layer of the module's: torch.where takes none of them, or the branch only moves."""
    if isinstance(node, ast.UnaryOp):
        return _is_no_tensor(node.operand)
    if isinstance(node, ast.Attribute):
        return _text(node).startswith(("self.", "cls."))
    return isinstance(node, (ast.Constant, ast.JoinedStr, ast.List, ast.Dict, ast.Tuple, ast.Lambda))


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
    "for": _for,
    "while": _while,
    "index": _index,
    "filter": _filter,
    "and/or": _and_or,
    "match": _match,
    "Python's max": "torch.maximum, or a stacked tensor's amax: no comparison in Python",
    "Python's min": "torch.minimum, or a stacked tensor's amin: no comparison in Python",
    "Python's sorted": "torch.sort: no comparison in Python",
}
