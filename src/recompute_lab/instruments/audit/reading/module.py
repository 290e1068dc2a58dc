"""Read one module: every function, as often as what is learned of its parameters and attributes changes."""

from __future__ import annotations

import ast

from recompute_lab.instruments.audit.reading import vocabulary as words
from recompute_lab.instruments.audit.reading.annotations import kind_of
from recompute_lab.instruments.audit.reading.kinds import (
    CLASS,
    EXTERNAL,
    FUNCTION,
    INSTANCE,
    ITEMS,
    MAPPING,
    MODULE,
    NEVER,
    PLAIN,
    PLAIN_KIND,
    READ_KIND,
    TENSOR,
    TENSOR_KIND,
    TUPLE,
    UNKNOWN,
    UNKNOWN_KIND,
    Value,
    items,
    join,
    read,
    same,
)
from recompute_lab.instruments.audit.reading.records import ClassRecord, FunctionRecord
from recompute_lab.instruments.audit.reading.statements import Statements

# Libraries of which calls.py knows something; of all others only the name is kept.
_KNOWN = frozenset(
    """torch numpy math cmath random os time re json logging warnings sys itertools functools copy collections einops
    scipy statistics inspect pathlib""".split()
)
_ARRAYS = frozenset("numpy pandas jax tensorflow cupy xarray mlx polars".split())
_RUNS = 4  # of one function
_DEPTH = 25  # of calls that are followed at once; deeper ones wait in the queue


class Module:
    """A module's syntax tree, and what was found in it.

    `dotted`: its dotted name as far as the folders tell ("" at the top), for imports with leading dots.
    """

    def __init__(self, tree: ast.Module, dotted: str = ""):
        self.tree, self.dotted = tree, dotted
        self.functions: dict[ast.AST, FunctionRecord] = {}
        self.classes: dict[ast.AST, ClassRecord] = {}
        self.queue: list[FunctionRecord] = []
        self.depth = 0
        self.twice: set[object] = set()  # what is run under a checkpoint: records, and dotted names
        self.too_deep: list[str] = []
        self.has_torch = self.has_arrays = False
        self.array_names: set[str] = set()
        self._imports: dict[str, Value] = {}

    def read(self) -> None:
        for node in _statements(self.tree.body):
            if isinstance(node, ast.Import):
                roots = {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                roots = {(node.module or "").partition(".")[0]}
            else:
                continue
            self.has_torch |= "torch" in roots
            if roots & _ARRAYS:
                self.has_arrays = True
                self.array_names |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
        top = FunctionRecord(self.tree, "<module>", state="done")
        self.functions[self.tree] = top
        self.top = Statements(self, top)
        for statement in self.tree.body:  # one by one: what follows `raise SystemExit` in a notebook is read as well
            try:
                self.top.walk([statement])
            except RecursionError:
                self.too_deep.append(f"line {statement.lineno}")
        for owner in list(self.classes.values()):
            self.initialise(owner)
        while True:
            waiting = [r for r in self.functions.values() if r.state == "new"]
            if not waiting and not self.queue:
                return
            for record in waiting:
                if record.state == "new":
                    self.run(record)
            queue, self.queue = self.queue, []
            for record in queue:
                record.queued = False
                if record.runs < _RUNS:
                    self.run(record)

    # Functions.

    def run(self, record: FunctionRecord) -> None:
        if record.node is self.tree:
            return
        before = record.returns
        record.state, record.returns = "running", None
        record.runs += 1
        record.sites, record.sizes = {}, set()
        self.depth += 1
        try:
            Statements(self, record).run()
        except RecursionError:
            self.too_deep.append(record.name)
        finally:
            self.depth -= 1
            record.state = "done"
        if not same(before or NEVER, record.returns or NEVER):
            for caller in record.callers:
                self.again(caller)

    def again(self, record: FunctionRecord) -> None:
        if not record.queued and record.state != "new":
            record.queued = True
            self.queue.append(record)

    def nested(self, node, scope: Statements) -> FunctionRecord:
        """The record of a function that is defined where `scope` stands."""
        record = self.functions.get(node)
        outer = [scope.names, *scope.outer]
        if record is None:
            parent = scope.record
            name = getattr(node, "name", "<lambda>")
            if parent.node is not self.tree:
                name = f"{parent.name}.{name}"
            record = self.functions[node] = self.new_function(node, name, outer, parent=parent)
        record.outer = outer
        self.again(record)  # the names around it may be known better than before
        return record

    def new_function(self, node, name, outer, owner: ClassRecord | None = None, parent=None) -> FunctionRecord:
        record = FunctionRecord(node, name, owner, outer, parent)
        arguments = node.args
        positional = [*arguments.posonlyargs, *arguments.args]
        record.positional = [argument.arg for argument in positional]
        record.packed = tuple(one.arg if one else None for one in (arguments.vararg, arguments.kwarg))
        defaults = dict(zip([a.arg for a in positional[::-1]], arguments.defaults[::-1], strict=False))
        defaults |= {
            a.arg: d for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if d is not None
        }
        if owner is not None:
            decorators = {d.id if isinstance(d, ast.Name) else getattr(d, "attr", "") for d in node.decorator_list}
            record.binding = (
                "static" if "staticmethod" in decorators else "class" if "classmethod" in decorators else "method"
            )
            record.property = bool(decorators & {"property", "cached_property"})
        for argument in (*positional, *arguments.kwonlyargs):
            default = defaults.get(argument.arg)
            said = kind_of(argument.annotation)
            if said is None:
                said = PLAIN if argument.arg in words.CONFIGURATION else UNKNOWN
                if default is None:
                    record.untyped.add(argument.arg)
                elif not (isinstance(default, ast.Constant) and default.value is None):
                    said = self._default(default, outer)
            record.params[argument.arg] = said
        if owner is not None and node.name == "forward" and record.binding == "method":
            first = next(iter(list(record.params)[1:]), None)
            if first in record.untyped and owner.is_module:
                record.params[first] = TENSOR  # a layer is called with a tensor
        record.handles_tensors = any(v.kind == TENSOR_KIND for v in record.params.values())
        for argument, kind in ((arguments.vararg, None), (arguments.kwarg, UNKNOWN)):
            if argument is not None:
                record.params[argument.arg] = kind or items(kind_of(argument.annotation) or UNKNOWN)
        return record

    def _default(self, node: ast.expr, outer: list[dict[str, Value]]) -> Value:
        if isinstance(node, (ast.Constant, ast.UnaryOp, ast.Tuple, ast.BinOp)):
            return PLAIN
        if isinstance(node, (ast.List, ast.Set)):
            return items(UNKNOWN)
        if isinstance(node, ast.Dict):
            return Value(MAPPING, {})
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            for scope in outer:
                known = scope.get(node.func.id)
                if known is not None:
                    return Value(INSTANCE, known.parts) if known.kind == CLASS else UNKNOWN
        return UNKNOWN

    def returned(self, record: FunctionRecord, scope, nodes=(), values=(), keywords=None, bound=None) -> Value:
        """What a call of the file's own function returns; its parameters learn what they are given."""
        caller = scope.record
        caller.calls.add(record)
        record.callers[caller] = None
        names = record.positional
        if record.binding == "class" or (record.binding == "method" and bound is None):
            names = names[1:]
        changed = False
        given = []
        for at, value in enumerate(values):
            node = nodes[at] if at < len(nodes) else None
            if isinstance(node, ast.Starred):
                break  # how many it is, nobody knows, and so not where the next ones go
            if at < len(names):
                given.append((names[at], value, node))
            elif record.packed[0] is not None:
                given.append((record.packed[0], items(value), None))
        known = {*record.positional, *record.params} - set(record.packed)
        given += [(name, *pair) for name, pair in (keywords or {}).items() if name in known]
        for name, value, node in given:
            known = record.params[name]
            if value.kind != UNKNOWN_KIND:
                changed |= record.learns(name, _given(value, known))
            elif known.kind == TENSOR_KIND and isinstance(node, ast.Name):
                scope.is_tensor(node)
        if record.state == "new" and self.depth < _DEPTH:
            self.run(record)
        elif changed and record.state == "done":
            self.again(record)
        return record.returns or UNKNOWN

    def learned(self, record: FunctionRecord, name: str, value: Value) -> None:
        """The body shows what a parameter is: read it again from the top, knowing it."""
        if record.learns(name, value):
            self.again(record)

    def handles_tensors(self, record: FunctionRecord) -> None:
        if not record.handles_tensors:
            record.handles_tensors = True
            self.again(record)

    def uses_arrays(self, record: FunctionRecord) -> bool:
        """True where an array's method could be NumPy's: where NumPy is imported, and this function names it."""
        if not self.has_arrays:
            return False
        if record.uses_arrays is None:
            named = any(isinstance(p, ast.Name) and p.id in self.array_names for p in ast.walk(record.node))
            record.uses_arrays = named
        return record.uses_arrays or not record.handles_tensors

    def number_of_parameter(self, node: ast.Call, record: FunctionRecord) -> Value:
        """int(n) of an untyped parameter, in a function that computes with tensors, where nobody says what n is."""
        if node.args[0].id in record.untyped and record.handles_tensors and not record.name.endswith("__init__"):
            value = read(node)
            value.suspected = True
            return value
        return PLAIN

    def rebound(self, name: str, value: Value, scope: Statements) -> None:
        """A global or nonlocal name has another value: whoever reads it is read again."""
        for around in scope.outer:
            known = around.get(name)
            if known is not None:
                found = join(known, value)
                if not same(known, found):
                    around[name] = found
                    for record in self.functions.values():
                        if record.state == "done" and record.node is not self.tree:
                            self.again(record)
                return

    # Classes.

    def class_record(self, node: ast.ClassDef, scope: Statements, inside: str = "") -> ClassRecord:
        record = self.classes.get(node)
        if record is not None:
            return record
        inside = inside or ("" if scope.record.node is self.tree else scope.record.name)
        name = f"{inside}.{node.name}" if inside else node.name
        record = self.classes[node] = ClassRecord(node, name, [scope.of(base) for base in node.bases])
        outer = [scope.names, *scope.outer]
        body = _direct(node.body)
        names, scope.names = scope.names, dict(scope.names)
        for statement in body:
            if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                record.attributes[statement.target.id] = kind_of(statement.annotation) or UNKNOWN
                record.fields.append(statement.target.id)
            elif isinstance(statement, ast.Assign):
                value = scope.of(statement.value)
                for target in statement.targets:
                    if isinstance(target, ast.Name):
                        record.attributes[target.id] = value
            elif isinstance(statement, ast.ClassDef):
                record.attributes[statement.name] = Value(CLASS, self.class_record(statement, scope, name))
        scope.names = names
        methods = [s for s in body if isinstance(s, (ast.FunctionDef, ast.AsyncFunctionDef))]
        for method in methods:  # all of them first: a class is a module by its having a forward
            record.methods[method.name] = self.functions.setdefault(
                method, FunctionRecord(method, f"{name}.{method.name}", record)
            )
        for method in methods:
            one = self.new_function(method, f"{name}.{method.name}", outer, record)
            self.functions[method] = record.methods[method.name] = one
        return record

    def named_tuple(self, node: ast.Call) -> Value:
        """What collections.namedtuple("Pair", "a b") returns, where its fields are written there."""
        record = self.classes.get(node)
        if record is None:
            said = node.args[1] if len(node.args) > 1 else None
            if isinstance(said, ast.Constant) and isinstance(said.value, str):
                fields = said.value.replace(",", " ").split()
            else:
                names = [part.value for part in getattr(said, "elts", ()) if isinstance(part, ast.Constant)]
                fields = [name for name in names if isinstance(name, str)]
            if not fields:
                return UNKNOWN
            name = str(getattr(node.args[0], "value", "namedtuple"))
            record = ClassRecord(node, name, [Value(EXTERNAL, "typing.NamedTuple")], fields=fields)
            self.classes[node] = record
        return Value(CLASS, record)

    def initialise(self, owner: ClassRecord) -> None:
        """Read its __init__ first: that is where attributes are set."""
        if owner.initialised:
            return
        owner.initialised = True
        for one in owner.family():
            one.initialised = True
            init = one.methods.get("__init__")
            if init is not None and init.state == "new" and self.depth < _DEPTH:
                self.run(init)

    def assigned(self, owner: ClassRecord, name: str, value: Value, record: FunctionRecord) -> None:
        known = owner.attributes.get(name)
        found = value if known is None else join(known, value)
        if known is not None and same(known, found):
            return
        owner.attributes[name] = found
        for one in self.classes.values():
            if name in one.asked and owner in one.family():
                for asker in one.asked[name]:
                    self.again(asker)

    # Names from elsewhere.

    def imported(self, dotted: str) -> Value:
        found = self._imports.get(dotted)
        if found is None:
            kind = MODULE if dotted.partition(".")[0] in _KNOWN else EXTERNAL
            found = self._imports[dotted] = Value(kind, dotted)
        return found

    def absolute(self, module: str, level: int) -> str:
        if not level:
            return module
        base = self.dotted.split(".")[:-level] if self.dotted else []
        return ".".join([*base, *([module] if module else [])])

    def runs_twice(self, value: Value) -> None:
        """This value is given to a checkpoint."""
        if value.kind in (FUNCTION, INSTANCE, CLASS, EXTERNAL):
            self.twice.add(value.parts)
        elif value.kind in (ITEMS, TUPLE):
            for part in value.parts if value.kind == TUPLE else (value.parts,):
                self.runs_twice(part)


def _given(value: Value, known: Value) -> Value:
    """An argument that is a plain value says nothing against a tensor; an annotation says more than one call."""
    if value.kind == PLAIN_KIND and known.kind != PLAIN_KIND:
        return UNKNOWN
    if known.kind == PLAIN_KIND and value.kind not in (READ_KIND, TENSOR_KIND):
        return UNKNOWN
    return value


def _direct(body: list[ast.stmt]) -> list[ast.stmt]:
    """The statements of a class body, with those under an if, a try or a with in it."""
    found = []
    for statement in body:
        found.append(statement)
        if isinstance(statement, (ast.If, ast.Try, ast.With)):
            for name in ("body", "orelse", "finalbody"):
                found += _direct(getattr(statement, name, []))
            for handler in getattr(statement, "handlers", []):
                found += _direct(handler.body)
    return found


def _statements(body: list[ast.stmt]):
    """All statements, nested ones too, without their expressions."""
    queue = list(body)
    while queue:
        node = queue.pop()
        yield node
        for name in ("body", "orelse", "finalbody", "handlers", "cases"):
            queue += getattr(node, name, ())
