"""Which cells of a notebook need which others first, read off their source; and random orders that respect that.

A cell reads, binds and changes names. To change is to assign to an attribute or an item of it, or to call a method of
it that is not known to only look; an argument counts as looked at. What a function does, the cell does that names the
function, or an object made with it. torch's, NumPy's and Python's default streams are names of their own: to seed one
is to bind it, to draw from it is to change it.

What can be told from no cell's source, such as a package's function that changes its argument, is not respected:
an output that depends on it is found by running the cells in such an order.
"""

import ast
import builtins
import random
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch

# Methods that only look: those of values that cannot change, a dict's views, and tensors' that torch has as functions.
LOOKS = {name for kind in (str, bytes, tuple, frozenset, int, float) for name in dir(kind)}
LOOKS |= {"items", "keys", "values", "get", "copy"}
LOOKS |= {name for name in dir(torch.Tensor) if hasattr(torch, name) and not name.endswith("_")}
LOOKS |= {"named_parameters", "parameters", "state_dict", "tolist"}

STREAMS = {"torch": "torch's stream", "np": "NumPy's stream", "numpy": "NumPy's stream", "random": "Python's stream"}
SEEDS = {"manual_seed", "seed", "set_rng_state", "set_state", "setstate"}
DRAWS = {"rand", "randn", "randint", "randperm", "rand_like", "randn_like", "normal", "bernoulli", "dropout"}


@dataclass
class Effects:
    """What a piece of code does to names of its notebook."""

    reads: set[str] = field(default_factory=set)  # before it binds them
    binds: set[str] = field(default_factory=set)
    changes: set[str] = field(default_factory=set)  # what it had not bound itself; each of them is read, too
    imports: set[str] = field(default_factory=set)  # of the names it binds
    made_of: dict[str, set[str]] = field(default_factory=dict)  # a name it binds: the names in the value's expression
    later: dict[str, "Effects"] = field(default_factory=dict)  # a function or class it defines: what calling that does


class _Reader(ast.NodeVisitor):
    """Goes through a piece of code in the order in which it runs."""

    def __init__(self, local: frozenset[str] = frozenset()):
        self.done, self.local = Effects(), set(local)

    # --- names

    def read(self, name: str) -> None:
        if name not in self.local and name not in self.done.binds:
            if not hasattr(builtins, name):
                self.done.reads.add(name)

    def change(self, name: str) -> None:
        if name not in self.local and name not in self.done.binds:
            self.done.reads.add(name)
            self.done.changes.add(name)

    def bind(self, name: str, value: ast.AST | None = None) -> None:
        if name not in self.local:
            self.done.binds.add(name)
            self.done.made_of[name] = names_in(value) - {name}

    def visit_Name(self, node):
        if isinstance(node.ctx, ast.Load):
            self.read(node.id)
        elif isinstance(node.ctx, ast.Store):
            self.bind(node.id)
        else:
            self.change(node.id)

    def target(self, node: ast.AST, value: ast.AST | None) -> None:
        """An assignment's left side, after its right side was visited."""
        if isinstance(node, ast.Name):
            self.bind(node.id, value)
        elif isinstance(node, ast.Tuple | ast.List):
            for part in node.elts:
                self.target(part, value)
        elif isinstance(node, ast.Starred):
            self.target(node.value, value)
        else:
            self.generic_visit(node)
            if root := root_of(node):
                self.change(root)
                self.done.made_of.setdefault(root, set()).update(names_in(value))

    # --- statements

    def visit_Assign(self, node):
        self.visit(node.value)
        for target in node.targets:
            self.target(target, node.value)

    def visit_AnnAssign(self, node):
        if node.value:
            self.visit(node.value)
            self.target(node.target, node.value)

    def visit_NamedExpr(self, node):
        self.visit(node.value)
        self.target(node.target, node.value)

    def visit_AugAssign(self, node):
        self.visit(node.value)
        if root := root_of(node.target):
            self.change(root)

    def visit_Delete(self, node):
        for target in node.targets:
            if root := root_of(target):
                self.change(root)

    def visit_For(self, node):  # run at least once, as far as this knows
        self.visit(node.iter)
        self.target(node.target, node.iter)
        self.all_of(node.body + node.orelse)

    def visit_With(self, node):
        for item in node.items:
            self.visit(item.context_expr)
            if item.optional_vars:
                self.target(item.optional_vars, item.context_expr)
        self.all_of(node.body)

    def visit_If(self, node):
        """What one arm binds may not be bound afterwards: it stays in `binds`, but is read all the same."""
        self.visit(node.test)
        self.maybe(node.body)
        self.maybe(node.orelse)

    def visit_While(self, node):
        self.visit(node.test)
        self.maybe(node.body)

    def visit_Try(self, node):
        self.all_of(node.body)
        for handler in node.handlers:
            if handler.type:
                self.visit(handler.type)
            known = handler.name in self.local
            self.local.add(handler.name)
            self.maybe(handler.body)
            if not known:
                self.local.discard(handler.name)
        self.all_of(node.orelse + node.finalbody)

    def all_of(self, statements: list[ast.stmt]) -> None:
        for statement in statements:
            self.visit(statement)

    def maybe(self, statements: list[ast.stmt]) -> None:
        before = set(self.done.binds)
        self.all_of(statements)
        self.done.reads |= self.done.binds - before - self.local

    def visit_Import(self, node):
        for alias in node.names:
            name = alias.asname or alias.name.partition(".")[0]
            self.bind(name)
            self.done.imports.add(name)

    visit_ImportFrom = visit_Import

    def visit_FunctionDef(self, node):
        for part in (*node.decorator_list, *node.args.defaults, *filter(None, node.args.kw_defaults)):
            self.visit(part)
        self.bind(node.name)
        self.done.later[node.name] = body_of(node, self.local)

    def visit_ClassDef(self, node):
        for part in (*node.decorator_list, *node.bases, *(word.value for word in node.keywords)):
            self.visit(part)
        whole = Effects()
        for part in node.body:
            if isinstance(part, ast.FunctionDef):
                merge(whole, body_of(part, self.local))
            else:
                inner = _Reader(frozenset(self.local))
                inner.visit(part)
                self.done.reads |= inner.done.reads - self.done.binds
        self.bind(node.name)
        self.done.made_of[node.name] = set().union(*map(names_in, node.bases))
        self.done.later[node.name] = whole

    # --- expressions

    def visit_Lambda(self, node):  # as if it were called at once
        inner = body_of(node, self.local)
        for name in inner.reads:
            self.read(name)
        for name in inner.changes:
            self.change(name)

    def comprehension(self, node):
        outer = set(self.local)
        for part in node.generators:
            self.visit(part.iter)
            self.local |= {n.id for n in ast.walk(part.target) if isinstance(n, ast.Name)}
            for test in part.ifs:
                self.visit(test)
        for part in (node.key, node.value) if isinstance(node, ast.DictComp) else (node.elt,):
            self.visit(part)
        self.local = outer

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = comprehension

    def visit_Call(self, node):
        self.generic_visit(node)
        if isinstance(node.func, ast.Attribute) and (root := root_of(node.func)):
            method, words = node.func.attr, {word.arg for word in node.keywords}
            stream = STREAMS.get(root)
            if method == "seed_everything":
                self.done.binds |= set(STREAMS.values())
            elif stream and method in SEEDS:
                self.done.binds.add(stream)
            elif stream and (method in DRAWS and "generator" not in words or ".random" in ast.unparse(node.func)):
                self.change(stream)
            elif "nn" in ast.unparse(node.func).split(".")[:2] and method[0].isupper():
                self.change(STREAMS["torch"])  # a layer draws its weights
            elif method not in LOOKS:
                self.change(root)


def root_of(node: ast.AST) -> str | None:
    """The name that a chain of attributes, items and calls begins with."""
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Starred | ast.Call):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else None


def names_in(node: ast.AST | None) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)} if node else set()


def body_of(function: ast.FunctionDef | ast.Lambda, outer: set[str]) -> Effects:
    """What a call of it does to names that are not its own."""
    arguments = function.args
    own = {a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}
    own |= {a.arg for a in (arguments.vararg, arguments.kwarg) if a}
    statements = function.body if isinstance(function.body, list) else [ast.Expr(function.body)]
    inside = [n for statement in statements for n in ast.walk(statement)]
    shared = {name for n in inside if isinstance(n, ast.Global | ast.Nonlocal) for name in n.names}
    own |= {n.id for n in inside if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    own |= {n.name for n in inside if isinstance(n, ast.FunctionDef | ast.ClassDef)}
    reader = _Reader(frozenset((own | outer) - shared))
    reader.all_of(statements)
    inner = reader.done
    for later in inner.later.values():  # its own functions: as if they were called
        merge(inner, later)
    inner.changes |= inner.binds
    inner.reads -= reader.local
    return inner


def merge(into: Effects, one: Effects) -> None:
    into.reads |= one.reads
    into.changes |= one.changes


def effects(source: str) -> Effects:
    """What one cell does, but for the functions of other cells that it calls."""
    reader = _Reader()
    reader.all_of(ast.parse(source).body)
    return reader.done


# --- Of a whole notebook


def needs(sources: list[str]) -> list[set[int]]:
    """For each cell the cells before it, by their place, that have to be run before it, too."""
    cells = [effects(source) for source in sources]
    reads, changes = [], []
    for place, cell in enumerate(cells):
        all_read, all_changed = set(cell.reads), set(cell.changes)
        known = cells[: place + 1]
        for name in _reached(known, cell.reads | cell.binds):
            later = next((c.later[name] for c in reversed(known) if name in c.binds and name in c.later), Effects())
            all_read |= later.reads - cell.binds
            all_changed |= later.changes - cell.binds
        imported = {name for c in known for name in c.imports}
        # A method of a module or a class of the package is the package's; what it does is found by running it.
        directly = {n for n in all_changed if n not in imported or n in _assigned(sources[place])}
        held = _reached(known, directly) - imported if directly else set()
        reads.append(all_read | directly)
        changes.append(directly | {n for n in held if not any(n in c.later for c in known)} - cell.binds)
    return [set(before) for before in _ordered(cells, reads, changes)]


def _assigned(source: str) -> set[str]:
    """The names of which an attribute or an item is assigned to, anywhere in the source."""
    stored = (ast.Attribute, ast.Subscript)
    return {root_of(n) for n in ast.walk(ast.parse(source)) if isinstance(n, stored) and isinstance(n.ctx, ast.Store)}


def _reached(cells: list[Effects], names: set[str]) -> set[str]:
    """The names and those that their values were made of, and so on, by each name's latest binding."""
    todo, found = list(names), set(names)
    while todo:
        name = todo.pop()
        latest = next((c for c in reversed(cells) if name in c.binds), None)
        parts = set()
        if latest and name not in latest.imports:
            parts = latest.made_of.get(name, set()) | (latest.later[name].reads if name in latest.later else set())
        todo += parts - found
        found |= parts
    return found


def _ordered(cells: list[Effects], reads: list[set[str]], changes: list[set[str]]) -> Iterator[set[int]]:
    before: list[set[int]] = [set() for _ in cells]
    for name in set().union(*(c.binds for c in cells), *changes):
        writers = [i for i, c in enumerate(cells) if name in c.binds or name in changes[i]]
        users: dict[int, list[int]] = {i: [] for i in writers}  # of each writer's version
        for i in range(len(cells)):
            if name in reads[i] or name in changes[i]:
                sources = [w for w in writers if w < i]
                if sources:
                    users[sources[-1]].append(i)
                    before[i].add(sources[-1])
        for place, first in enumerate(writers):
            for second in writers[place + 1 :]:
                if users[second]:
                    before[second].add(first)
                for user in users[first]:
                    if user < second:
                        before[second].add(user)
    return iter(before)


def closed(before: list[set[int]]) -> list[set[int]]:
    """With what those need that it needs, and so on."""
    found: list[set[int]] = []
    for needed in before:
        found.append(needed.union(*(found[i] for i in needed)))
    return found


def free_pairs(before: list[set[int]]) -> int:
    """How many pairs of cells may be run in either order."""
    return len(before) * (len(before) - 1) // 2 - sum(map(len, closed(before)))


def shuffled(before: list[set[int]], seed: int | str) -> list[int]:
    """An order of the cells in which none comes before one that it needs; the same for the same seed."""
    dice, order, left = random.Random(seed), [], set(range(len(before)))
    while left:
        ready = sorted(i for i in left if not before[i] & left)
        order.append(dice.choice(ready))
        left.remove(order[-1])
    return order
