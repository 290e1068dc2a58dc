"""A condition, written so that it stays a tensor: what torch.where and torch._assert_async take."""

from __future__ import annotations

import ast

from recompute_lab.instruments.audit.reading.guards import plain
from recompute_lab.instruments.audit.reading.records import Site
from recompute_lab.instruments.audit.reading.vocabulary import MASKS

CONDITION = "condition"
_LONG = 80  # characters of an expression that is quoted
_LONGEST = 400  # of one that is rewritten at all
_READERS = {"item": ".item()", "tolist": ".tolist()", "bool": "bool(...)", "int": "int(...)", "float": "float(...)"}
_OF_TORCH = frozenset(("isfinite", "isnan", "isinf"))  # which math has as well


def condition(site: Site) -> tuple[str, str]:
    """The condition as a tensor of booleans, and what must be said of it; "condition" where no rewriting is known."""
    test = site.test
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        left = [part for part in test.values if ast.unparse(plain(part)) not in site.guards]
        test = left[0] if len(left) == 1 else ast.BoolOp(test.op, left) if left else test
    said = rewritten(test, boolean=True)
    note = read_before(site, site.test)
    if said is None or note is None or len(said) > _LONG:
        return CONDITION, ", the condition kept as a tensor"
    return said, note


def read_before(site: Site, node: ast.AST) -> str | None:
    """Where the read stands, if it is before this expression: what is not to be called there. None: cannot be told."""
    line = getattr(site.origin, "lineno", None)
    if line is None or any(part is site.origin for part in ast.walk(node)):
        return ""
    if isinstance(site.origin, ast.Call):
        reader = _READERS.get(_name(site.origin.func))
        return f", without {reader} in line {line}" if reader is not None else None
    return "" if _is_tensor_itself(site.origin) else None


def rewritten(node: ast.expr, boolean: bool = False) -> str | None:
    """The expression without a read into Python, as source; None where it cannot be told. `boolean`: as a mask."""
    text = ast.unparse(node)
    if len(text) > _LONGEST or "\n" in text or (isinstance(node, ast.BoolOp) and not boolean):
        return None  # `a and b`, for its value, is one of the two
    try:
        tree = _AsTensor().visit(ast.parse(text, mode="eval").body)
    except _CannotTell:
        return None
    return ast.unparse(_as_mask(tree) if boolean else tree)


def opposite(text: str) -> str:
    """`not`, for a tensor of booleans."""
    return ast.unparse(_inverted(ast.parse(text, mode="eval").body))


def _is_tensor_itself(node: ast.AST) -> bool:
    """A read without a reader: the tensor's own truth, where the branch asks for it."""
    return isinstance(node, (ast.Name, ast.Attribute, ast.Subscript))


class _CannotTell(Exception):
    pass


class _AsTensor(ast.NodeTransformer):
    def visit_Call(self, node: ast.Call) -> ast.expr:
        name, args = _name(node.func), node.args
        builtin = isinstance(node.func, ast.Name)
        on = node.func.value if isinstance(node.func, ast.Attribute) else None
        library = on.id if isinstance(on, ast.Name) else ""
        if builtin and name in ("bool", "float", "int") and len(args) == 1:
            inner = self.visit(args[0])
            return _method(inner, "long") if name == "int" else inner
        if on is not None and name == "item" and not args:
            return self.visit(on)
        if name == "equal" and on is not None:
            a, b = args if library == "torch" and len(args) == 2 else (on, args[0]) if args else _fail()
            return _method(ast.Compare(self.visit(a), [ast.Eq()], [self.visit(b)]), "all")
        if name == "allclose" and on is not None:
            given = args if library == "torch" else [on, *args]
            return _method(ast.Call(_dotted("torch", "isclose"), given, node.keywords), "all")
        if name == "is_nonzero":
            return ast.Compare(self.visit(args[0] if library == "torch" else on), [ast.NotEq()], [ast.Constant(0)])
        if library == "math" and name in _OF_TORCH and len(args) == 1:
            return ast.Call(_dotted("torch", name), [self.visit(args[0])], [])
        if builtin and name in ("any", "all") and len(args) == 1 and isinstance(args[0], ast.GeneratorExp):
            part = args[0].generators[0]
            if len(args[0].generators) == 1 and not part.ifs:
                each = ast.ListComp(_as_mask(self.visit(args[0].elt)), args[0].generators)
                return _method(ast.Call(_dotted("torch", "stack"), [each], []), name)
        if library in ("np", "numpy", "math", "operator") or name in ("tolist", "numpy", "numel", "size"):
            raise _CannotTell
        if builtin and name in ("len", "any", "all", "max", "min", "sum", "abs", "round", "isinstance", "str"):
            raise _CannotTell
        return self.generic_visit(node)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> ast.expr:
        return self.visit(node.value)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        if isinstance(node.op, ast.Not):
            return _inverted(self.visit(node.operand))
        return self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        parts = [_as_mask(self.visit(part)) for part in node.values]
        return _joined(parts, ast.BitAnd() if isinstance(node.op, ast.And) else ast.BitOr())

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        if any(isinstance(op, (ast.In, ast.NotIn, ast.Is, ast.IsNot)) for op in node.ops):
            raise _CannotTell
        values = [self.visit(part) for part in (node.left, *node.comparators)]
        pairs = [ast.Compare(values[i], [op], [values[i + 1]]) for i, op in enumerate(node.ops)]
        return pairs[0] if len(pairs) == 1 else _joined(pairs, ast.BitAnd())

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        if node.attr in ("shape", "ndim") or (isinstance(node.value, ast.Name) and node.value.id in ("np", "numpy")):
            raise _CannotTell
        return self.generic_visit(node)

    def visit_IfExp(self, node: ast.AST) -> ast.expr:
        raise _CannotTell

    visit_GeneratorExp = visit_ListComp = visit_JoinedStr = visit_Await = visit_Starred = visit_Lambda = visit_IfExp


def _fail():
    raise _CannotTell


def _name(func: ast.expr) -> str:
    return func.id if isinstance(func, ast.Name) else getattr(func, "attr", "")


def _dotted(module: str, name: str) -> ast.expr:
    return ast.Attribute(ast.Name(module), name)


def _method(on: ast.expr, name: str) -> ast.expr:
    return ast.Call(ast.Attribute(on, name), [], [])


def _joined(parts: list[ast.expr], op: ast.operator) -> ast.expr:
    found = parts[0]
    for part in parts[1:]:
        found = ast.BinOp(found, op, part)
    return found


def _inverted(node: ast.expr) -> ast.expr:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Invert):
        return node.operand
    return ast.UnaryOp(ast.Invert(), node) if is_mask(node) else ast.Compare(node, [ast.Eq()], [ast.Constant(0)])


def _as_mask(node: ast.expr) -> ast.expr:
    return node if is_mask(node) else ast.Compare(node, [ast.NotEq()], [ast.Constant(0)])


def is_mask(node: ast.expr) -> bool:
    """A comparison, any, all, isnan: what torch.where takes as it is."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Invert):
        return is_mask(node.operand)
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, (ast.BitAnd, ast.BitOr, ast.BitXor)) and is_mask(node.left)
    return isinstance(node, ast.Compare) or (isinstance(node, ast.Call) and _name(node.func) in MASKS)
