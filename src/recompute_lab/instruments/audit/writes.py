"""The second rule: a write that outlives the call, in a forward or in what it calls.

Attributes of the module and what hangs on them, buffers, globals, containers from outside, the
function's own arguments. Whether the second write differs from the first, only a run can tell.
"""

from __future__ import annotations

import ast

from recompute_lab.instruments.audit.kinds import ITEMS, LAYER, MAPPING, TENSOR_KIND, UNKNOWN_KIND
from recompute_lab.instruments.audit.module import Module
from recompute_lab.instruments.audit.records import ClassRecord, FunctionRecord, Site

_CONTAINER = frozenset(
    "append appendleft extend insert add update setdefault pop popleft popitem remove discard clear sort".split()
)
_BATCH_NORMS = frozenset("BatchNorm1d BatchNorm2d BatchNorm3d SyncBatchNorm LazyBatchNorm1d LazyBatchNorm2d".split())


def lasting_writes(module: Module) -> list[Site]:
    """In every function that a forward, or what is given to a checkpoint, reaches within the file."""
    reached: set[FunctionRecord] = set()
    queue = [one.methods["forward"] for one in module.classes.values() if "forward" in one.methods and one.is_module]
    for given in module.twice:
        queue.append(given if isinstance(given, FunctionRecord) else _forward(given))
    while queue:
        record = queue.pop()
        if record is None or record in reached or record.name.endswith("__init__"):
            continue
        reached.add(record)
        queue += [called if isinstance(called, FunctionRecord) else _forward(called) for called in record.calls]
        queue += [nested for nested in module.functions.values() if nested.parent is record]
    found = []
    for record in reached:
        try:
            found += _Writes(record).found
        except RecursionError:
            module.too_deep.append(record.name)
    return found


def _forward(called: object) -> FunctionRecord | None:
    return called.method("forward") if isinstance(called, ClassRecord) else None


class _Writes(ast.NodeVisitor):
    def __init__(self, record: FunctionRecord):
        self.record, self.found = record, []
        self.guards: list[ast.expr] = []
        node = record.node
        body = node.body if isinstance(node.body, list) else [ast.Expr(node.body)]
        self.receiver = next(iter(record.params), None) if record.binding == "method" else None
        self.declared = {
            n for s in body for p in ast.walk(s) if isinstance(p, (ast.Global, ast.Nonlocal)) for n in p.names
        }
        self.bound = _bound(body) - self.declared  # names that the function makes itself
        arguments = getattr(node, "args", None)
        packed = {one.arg for one in (arguments.vararg, arguments.kwarg) if one} if arguments else set()
        # *args, **kwargs and an autograd function's ctx are made for this call.
        self.arguments = set(record.params) - self.bound - packed - {self.receiver, "ctx"}
        for statement in body:
            self.visit(statement)

    def visit_FunctionDef(self, node) -> None:  # its own record has its writes
        pass

    visit_AsyncFunctionDef = visit_Lambda = visit_ClassDef = visit_FunctionDef

    def visit_If(self, node: ast.If) -> None:
        self.visit(node.test)
        if node in self.record.sites:  # decided by a tensor's value: a finding of its own, no guard
            for statement in (*node.body, *node.orelse):
                self.visit(statement)
            return
        self.guards.append(node.test)
        for statement in node.body:
            self.visit(statement)
        self.guards[-1] = ast.UnaryOp(ast.Not(), node.test)
        for statement in node.orelse:
            self.visit(statement)
        self.guards.pop()

    def visit_Assign(self, node: ast.Assign) -> None:
        for target in node.targets:
            self.target(target, node, "assign")
        self.visit(node.value)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.target(node.target, node, "assign")
            self.visit(node.value)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self.target(node.target, node, "add")
        self.visit(node.value)

    def visit_Delete(self, node: ast.Delete) -> None:
        for target in node.targets:
            self.target(target, node, "assign")

    def visit_Call(self, node: ast.Call) -> None:
        func = node.func
        if isinstance(func, ast.Attribute):
            self.method(node, func)
        elif (
            isinstance(func, ast.Name)
            and func.id == "setattr"
            and node.args
            and (self.lasts(node.args[0]) or _is(node.args[0], self.receiver))
        ):
            self.write(node, "assign", ast.unparse(node.args[0]))
        for keyword in node.keywords:
            if keyword.arg == "out" and self.lasts(keyword.value):
                self.write(node, "assign", ast.unparse(keyword.value))
        self.generic_visit(node)

    def method(self, node: ast.Call, func: ast.Attribute) -> None:
        name, on = func.attr, func.value
        layer = self.known(func)
        if layer is not None and layer.kind == LAYER and layer.parts in _BATCH_NORMS:
            self.write(node, "add", f"the running statistics of {ast.unparse(func)}")
            return
        value = self.known(on)
        if not self.lasts(on):
            return
        in_place = name.endswith("_") and not name.startswith("_") and name[:-1] and name not in ("requires_grad_",)
        if in_place and (value is None or value.kind in (TENSOR_KIND, UNKNOWN_KIND)):
            self.write(node, "assign" if name in ("copy_", "fill_", "zero_") else "add", ast.unparse(on))
        elif name in _CONTAINER and (value is None or value.kind in (ITEMS, MAPPING, UNKNOWN_KIND)):
            self.write(node, "container", ast.unparse(on))

    def target(self, target: ast.expr, node: ast.AST, form: str) -> None:
        if isinstance(target, (ast.Tuple, ast.List)):
            for part in target.elts:
                self.target(part, node, form)
        elif isinstance(target, ast.Starred):
            self.target(target.value, node, form)
        elif isinstance(target, ast.Name):
            if target.id in self.declared:
                self.write(node, form, target.id)
            elif form == "add" and target.id in self.record.params and self.is_tensor_argument(target.id):
                self.write(node, form, target.id)
        elif isinstance(target, (ast.Attribute, ast.Subscript)) and (
            self.lasts(target.value) or _is(target.value, self.receiver)
        ):
            self.write(node, form, ast.unparse(target))

    def is_tensor_argument(self, name: str) -> bool:
        """`x += y` writes into the caller's tensor, if x is still what the caller gave."""
        first = min((n.lineno for n in _stores(self.record.node, name)), default=0)
        adds = [n.lineno for n in ast.walk(self.record.node) if isinstance(n, ast.AugAssign) and _is(n.target, name)]
        return self.record.params[name].kind == TENSOR_KIND and bool(adds) and min(adds) <= first

    def lasts(self, node: ast.expr) -> bool:
        """True where this hangs on something that was there before the call: self, a global, an argument."""
        root = node
        while isinstance(root, (ast.Attribute, ast.Subscript)):
            root = root.value
        if not isinstance(root, ast.Name):
            return False
        if root.id == self.receiver:
            return root is not node  # self.cache.append(x), not self.append(x)
        if root.id in self.bound:
            return False
        return root.id in self.arguments or root.id in self.declared or self.is_captured(root.id)

    def is_captured(self, name: str) -> bool:
        """A name of an enclosing function or of the module, other than a module, a class or a function."""
        for scope in self.record.outer:
            if name in scope:
                return scope[name].kind not in ("module", "class", "function", "external")
        return False

    def known(self, node: ast.expr):
        """The kind of an attribute of the module, as far as its class shows it."""
        if isinstance(node, ast.Attribute) and _is(node.value, self.receiver) and self.record.owner is not None:
            return self.record.owner.attribute(node.attr)
        return None

    def write(self, node: ast.AST, form: str, subject: str) -> None:
        guards = [ast.unparse(guard) for guard in self.guards]
        self.found.append(
            Site(node, "lasting-write", form, None, guards, self.record, test=node, subject=subject)  # type: ignore
        )


def _bound(body: list[ast.stmt]) -> set[str]:
    """Names that the statements assign, without those of functions defined inside."""
    found, queue = set(), list(body)
    while queue:
        node = queue.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found.add(node.name)
            continue
        if isinstance(node, ast.Lambda):
            continue
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            queue.append(node.value)  # adds to what is there: no new thing
            continue
        if isinstance(node, ast.Name) and isinstance(node.ctx, (ast.Store, ast.Del)):
            found.add(node.id)
        elif isinstance(node, ast.ExceptHandler) and node.name:
            found.add(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            found |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
        queue += ast.iter_child_nodes(node)
    return found


def _stores(node: ast.AST, name: str) -> list[ast.Name]:
    return [n for n in ast.walk(node) if isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Store)]


def _is(node: ast.expr, name: str | None) -> bool:
    return isinstance(node, ast.Name) and node.id == name
