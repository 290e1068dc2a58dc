"""What is kept of a module while it is read: its functions, its classes, and the sites that were found."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from functools import cached_property

from recompute_lab.instruments.audit.reading.kinds import UNKNOWN, Value, join, same


@dataclass(eq=False)
class Site:
    """A decision on a tensor's value, or a lasting write, as the syntax tree has it."""

    node: ast.AST  # the deciding statement or expression, or the write
    rule: str
    form: str  # "if", "while", "for", "assert", "ternary", "and/or", "filter", "match", "index", "call", or a write
    origin: ast.AST | None  # where the value was read
    guards: list[str]
    function: FunctionRecord
    arms: tuple[list[ast.stmt], ...] = ()  # the statements that it chooses between
    test: ast.AST | None = None  # the condition, or the write itself
    suspected: bool = False
    subject: str = ""  # of a write: what is written


@dataclass(eq=False)
class FunctionRecord:
    """A function, method or lambda: what its parameters may be, what it returns, what it calls."""

    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
    name: str  # qualified, as in Block.forward
    owner: ClassRecord | None = None
    outer: list[dict[str, Value]] = field(default_factory=list)  # the scopes around it, innermost first
    parent: FunctionRecord | None = None
    params: dict[str, Value] = field(default_factory=dict)
    positional: list[str] = field(default_factory=list)
    packed: tuple[str | None, str | None] = (None, None)  # the names behind * and **
    untyped: set[str] = field(default_factory=set)  # neither annotated nor with a default
    returns: Value | None = None
    state: str = "new"  # then "running", "done"
    runs: int = 0
    sites: dict[ast.AST, Site] = field(default_factory=dict)
    sizes: set[ast.AST] = field(default_factory=set)  # sizes that depend on values and decide nothing
    calls: set[object] = field(default_factory=set)  # FunctionRecords, ClassRecords, dotted names
    handles_tensors: bool = False
    uses_arrays: bool | None = None
    binding: str = "function"  # or "method", "class", "static": what comes before its arguments
    property: bool = False
    callers: dict[FunctionRecord, None] = field(default_factory=dict)  # in order, as a set would not be
    queued: bool = False

    def following(self, node: ast.stmt) -> list[ast.stmt]:
        """The statements behind this one, in its block."""
        block, at = self._places.get(node, ([], 0))
        return block[at + 1 :]

    @cached_property
    def _places(self) -> dict[ast.stmt, tuple[list[ast.stmt], int]]:
        blocks = [getattr(n, f, None) for n in ast.walk(self.node) for f in ("body", "orelse", "finalbody")]
        blocks = [block for block in blocks if isinstance(block, list)]
        return {statement: (block, at) for block in blocks for at, statement in enumerate(block)}

    def learns(self, name: str, value: Value) -> bool:
        """Take what a call, or the body, shows of a parameter. True where that changes what is known."""
        known = self.params.get(name)
        if known is None or value.kind in ("unknown", "never"):
            return False
        # A default of None says nothing, and what is unknown gives way.
        found = value if known.kind == "unknown" else join(known, value)
        if same(found, known):
            return False
        self.params[name] = found
        return True


@dataclass(eq=False)
class ClassRecord:
    node: ast.ClassDef | ast.Call  # a call of namedtuple
    name: str
    bases: list[Value]
    methods: dict[str, FunctionRecord] = field(default_factory=dict)
    attributes: dict[str, Value] = field(default_factory=dict)
    fields: list[str] = field(default_factory=list)  # annotated in the class body, in order
    asked: dict[str, dict[FunctionRecord, None]] = field(default_factory=dict)  # who looked an attribute up
    initialised: bool = False

    def family(self) -> list[ClassRecord]:
        """The class and its bases in this file, nearest first."""
        found, queue = [], [self]
        while queue:
            one = queue.pop(0)
            if one not in found:
                found.append(one)
                queue += [base.parts for base in one.bases if base.kind == "class"]
        return found

    def outside_bases(self) -> list[str]:
        """Dotted names of the bases that other files define."""
        return [str(base.parts) for one in self.family() for base in one.bases if base.kind in ("external", "module")]

    def method(self, name: str) -> FunctionRecord | None:
        for one in self.family():
            if name in one.methods:
                return one.methods[name]
        return None

    def attribute(self, name: str) -> Value:
        for one in self.family():
            if name in one.attributes:
                return one.attributes[name]
        return UNKNOWN

    def all_fields(self) -> list[str]:
        """Of a dataclass or a named tuple: those of its bases first, as its constructor takes them."""
        return list(dict.fromkeys(name for one in reversed(self.family()) for name in one.fields))

    @property
    def is_named_tuple(self) -> bool:
        return any(base.rsplit(".", 1)[-1] == "NamedTuple" for base in self.outside_bases())

    @cached_property
    def read_attributes(self) -> set[str]:
        """The attributes that a method of the family reads, beyond adding to them."""
        return {
            node.attr
            for one in self.family()
            for method in one.methods.values()
            for node in ast.walk(method.node)
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)
        }

    @property
    def is_module(self) -> bool:
        """True where it looks like a torch.nn.Module: by a base, or by a forward."""
        bases = self.outside_bases()
        return any(b.split(".")[-1] == "Module" or b.startswith("torch.nn.") for b in bases) or bool(
            self.method("forward")
        )
