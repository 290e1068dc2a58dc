"""The second rule: a write that outlives the call, in a forward or in what it calls.

Attributes of the module and what hangs on them, buffers, globals, containers from outside, the
function's own arguments. Whether the second write differs from the first, only a run can tell.
"""

from __future__ import annotations

import ast

from recompute_lab.instruments.audit.reading.expressions import none_test
from recompute_lab.instruments.audit.reading.guards import plain
from recompute_lab.instruments.audit.reading.kinds import ITEMS, LAYER, MAPPING, TENSOR_KIND, UNKNOWN_KIND
from recompute_lab.instruments.audit.reading.module import Module
from recompute_lab.instruments.audit.reading.records import ClassRecord, FunctionRecord, Site

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
        scan = _Scan(body)
        self.declared, self.bound = scan.declared, scan.bound
        # *args, **kwargs and an autograd function's ctx are made for this call.
        self.arguments = set(record.params) - set(record.packed) - {self.receiver, "ctx"}
        if record.owner is not None and any(b.split(".")[-1] == "Function" for b in record.owner.outside_bases()):
            self.arguments.discard(next(iter(record.params), None))  # ctx, by another name
            self.receiver = None
        self.aliases: set[str] = set()
        # `cache = self.cache`: the name is what lasts, if it is never anything else.
        self.aliases = {name for name, value in scan.once.items() if self.is_part(value)}
        for statement in body:
            self.visit(statement)

    def is_part(self, node: ast.expr) -> bool:
        return isinstance(node, (ast.Attribute, ast.Subscript)) and self.lasts(node)

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
        elif isinstance(func, ast.Name) and node.args:
            on = node.args[0]
            if func.id == "setattr" and (self.lasts(on) or _is(on, self.receiver)):
                self.write(node, "assign", ast.unparse(on))
            elif func.id == "next" and self.is_part(on):
                self.write(node, "add", ast.unparse(on))
        for keyword in node.keywords:
            if keyword.arg == "out" and self.lasts(keyword.value):
                self.write(node, "assign", ast.unparse(keyword.value))
            elif keyword.arg == "inplace" and node.args and _is_true(keyword.value) and self.lasts(node.args[0]):
                self.write(node, "add", ast.unparse(node.args[0]))
        self.generic_visit(node)

    def method(self, node: ast.Call, func: ast.Attribute) -> None:
        name, on = func.attr, func.value
        layer = self.known(func)
        if layer is not None and layer.kind == LAYER and layer.parts in _BATCH_NORMS:
            self.write(node, "add", f"the running statistics of {ast.unparse(func)}")
            return
        if name.endswith("_") and node.args and self.is_torch(on) and self.lasts(node.args[0]):
            self.write(node, "add", ast.unparse(node.args[0]))  # torch.relu_(x), nn.init.normal_(self.weight)
            return
        if name in ("register_buffer", "register_parameter") and _is(on, self.receiver):
            self.write(node, "assign", ast.unparse(on))
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
            elif form == "add" and self.is_callers_tensor(target):
                self.write(node, form, target.id)
        elif isinstance(target, (ast.Attribute, ast.Subscript)) and (
            self.lasts(target.value) or _is(target.value, self.receiver) or self.is_shared(target.value)
        ):
            self.write(node, form, ast.unparse(target))

    def is_callers_tensor(self, target: ast.Name) -> bool:
        """`x += y` writes into the caller's tensor, as long as x is what the caller gave."""
        known = self.record.params.get(target.id)
        return known is not None and known.kind == TENSOR_KIND and self.is_given(target)

    def is_given(self, name: ast.Name) -> bool:
        """True where this name still holds the function's argument: it is bound anew further down, or not at all."""
        return name.id in self.arguments and name.lineno <= self.bound.get(name.id, name.lineno)

    def is_shared(self, node: ast.expr) -> bool:
        """A class, or a module: M.calls = 1, torch.backends.cudnn.benchmark = True, os.environ["A"] = "1"."""
        root = _root(node)
        return root is not None and root not in self.bound and self.kind_around(root) in ("class", "module", "external")

    def is_torch(self, node: ast.expr) -> bool:
        root = _root(node)
        return root is not None and root not in self.bound and self.kind_around(root) == "module"

    def lasts(self, node: ast.expr) -> bool:
        """True where this hangs on something that was there before the call: self, a global, an argument."""
        root = node
        while isinstance(root, (ast.Attribute, ast.Subscript)):
            root = root.value
        if not isinstance(root, ast.Name):
            return False
        if root.id == self.receiver:
            return root is not node  # self.cache.append(x), not self.append(x)
        if root.id in self.arguments:
            return self.is_given(root)
        if root.id in self.bound:
            return root.id in self.aliases
        return root.id in self.declared or self.is_captured(root.id)

    def kind_around(self, name: str) -> str | None:
        for scope in self.record.outer:
            if name in scope:
                return scope[name].kind
        return None

    def is_captured(self, name: str) -> bool:
        """A name of an enclosing function or of the module, other than a module, a class or a function."""
        return self.kind_around(name) not in (None, "module", "class", "function", "external")

    def known(self, node: ast.expr):
        """The kind of an attribute of the module, as far as its class shows it."""
        if isinstance(node, ast.Attribute) and _is(node.value, self.receiver) and self.record.owner is not None:
            return self.record.owner.attribute(node.attr)
        return None

    def write(self, node: ast.AST, form: str, subject: str) -> None:
        if any(map(_forward_alone, self.guards)):
            return
        guards = [ast.unparse(plain(guard)) for guard in self.guards[-5:]]
        self.found.append(Site(node, "lasting-write", form, None, guards, self.record, test=node, subject=subject))


def _forward_alone(guard: ast.expr) -> bool:
    """`not recomputing()`: what stands behind it is written in the forward alone (repairs.recomputation)."""
    asked = guard.operand if isinstance(guard, ast.UnaryOp) and isinstance(guard.op, ast.Not) else None
    func = getattr(asked, "func", None)
    return "recomputing" in (getattr(func, "id", None), getattr(func, "attr", None))


class _Scan(ast.NodeVisitor):
    """The names that the statements bind, without those of functions defined inside: in one walk."""

    def __init__(self, body: list[ast.stmt]):
        self.bound: dict[str, int] = {}  # with the line where they are bound first
        self.once: dict[str, ast.expr] = {}  # those that are assigned once, and what
        self.declared: set[str] = set()  # global, nonlocal
        self.default: set[str] = set()  # bound where they were None
        for statement in body:
            self.visit(statement)
        for name in self.declared:
            self.bound.pop(name, None)

    def bind(self, name: str, line: int) -> None:
        if name in self.default:
            return  # `if out is None: out = []`: else it is the caller's
        if name in self.bound:
            self.once.pop(name, None)
        self.bound[name] = min(line, self.bound.get(name, line))

    def visit_FunctionDef(self, node) -> None:
        self.bind(node.name, node.lineno)

    visit_AsyncFunctionDef = visit_ClassDef = visit_FunctionDef

    def visit_Lambda(self, node: ast.Lambda) -> None:
        pass

    def visit_Global(self, node) -> None:
        self.declared.update(node.names)

    visit_Nonlocal = visit_Global

    def visit_If(self, node: ast.If) -> None:
        none = none_test(node.test)
        new = {none[0]} - self.default if none and none[1] else set()
        self.visit(node.test)
        self.default |= new
        for statement in node.body:
            self.visit(statement)
        self.default -= new
        for statement in node.orelse:
            self.visit(statement)

    def visit_Assign(self, node: ast.Assign) -> None:
        self.visit(node.value)
        for target in node.targets:
            if isinstance(target, ast.Name) and target.id not in self.bound:
                self.once[target.id] = node.value
            self.visit(target)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self.visit(node.value)  # adds to what is there: no new thing
        if not isinstance(node.target, ast.Name):
            self.visit(node.target)

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, (ast.Store, ast.Del)):
            self.bind(node.id, node.lineno)

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        if node.name:
            self.bind(node.name, node.lineno)
        self.generic_visit(node)

    def visit_Import(self, node) -> None:
        for alias in node.names:
            self.bind((alias.asname or alias.name).partition(".")[0], node.lineno)

    visit_ImportFrom = visit_Import


def _root(node: ast.expr) -> str | None:
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None


def _is_true(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is True


def _is(node: ast.expr, name: str | None) -> bool:
    return isinstance(node, ast.Name) and node.id == name
