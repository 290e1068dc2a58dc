"""Walk the statements of a function in order, and keep what each name may be.

After a branch a name may be what either arm made it; a loop's body is walked until nothing more is learned.
"""

from __future__ import annotations

import ast

from recompute_lab.instruments.audit.reading.annotations import kind_of
from recompute_lab.instruments.audit.reading.calls import Calls
from recompute_lab.instruments.audit.reading.expressions import dynamic_dimension, is_shape, none_test, traces
from recompute_lab.instruments.audit.reading.kinds import (
    CLASS,
    FUNCTION,
    INSTANCE,
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
    element,
    join,
    read,
    same,
)

_LOOPS = 4  # nested, in which a body is walked twice


class Statements(Calls):
    loops = 0
    in_loop = False  # the innermost decision on a tensor's value is a loop's

    def __init__(self, module, record):
        super().__init__(module, record)
        self.steady: set[str] = set()  # names that each of its rounds sets alike: only the number of rounds tells

    def run(self) -> None:
        node, record = self.record.node, self.record
        self.names = dict(record.params)
        if record.binding in ("method", "class"):
            receiver = next(iter(record.params), None)
            if receiver is not None:
                self.names[receiver] = Value(INSTANCE if record.binding == "method" else CLASS, record.owner)
        if isinstance(node, ast.Lambda):
            record.returns = self.of(node.body)
        else:
            self.walk(node.body)

    def walk(self, body: list[ast.stmt]) -> bool:
        """True where the end of the block is never reached."""
        conditions = len(self.conditions)
        ended = False
        for statement in body:
            handler = _BY_STATEMENT.get(type(statement))
            if handler is not None and handler(self, statement):
                ended = True
                break
        del self.conditions[conditions:]
        return ended

    # Branches.

    def if_(self, node: ast.If) -> bool:
        if traces(node.test):
            return self.walk(node.orelse)
        found, guards = self.truth(node.test)
        before = self.names
        if found is not None:
            arms = (node.body, node.orelse)
            self.site(node, "if", found.origin or node.test, guards, arms, node.test, found.suspected)
        first, second = self.narrowed(node.test, before)
        self.names = first
        ended = self.arm(node.body, found, node.test)
        first, self.names = self.names, second
        opposite = ast.UnaryOp(ast.Not(), node.test)
        ended_too = self.arm(node.orelse, found, opposite) if node.orelse else False
        if ended and not ended_too and found is None:
            self.conditions.append(opposite)  # what follows runs only where the condition is false
        if ended or ended_too:
            self.names = self.names if ended else first
            return ended and ended_too
        self.merge(first)
        return False

    def arm(self, body: list[ast.stmt], found: Value | None, condition: ast.expr, loop: bool = False) -> bool:
        under, in_loop = self.under, self.in_loop
        if found is not None:
            self.under, self.in_loop = found.origin or condition, loop
        else:
            self.conditions.append(condition)
        ended = self.walk(body)
        if found is None:
            self.conditions.pop()
        self.under, self.in_loop = under, in_loop
        return ended

    def merge(self, other: dict[str, Value]) -> None:
        names = self.names
        for name, value in other.items():
            mine = names.get(name)
            if mine is not value:
                names[name] = value if mine is None else join(mine, value)

    def narrowed(self, test: ast.expr, names: dict[str, Value]) -> tuple[dict[str, Value], dict[str, Value]]:
        """The names in the two arms, with what `x is None` and `isinstance(x, ...)` tell of x."""
        first, second = dict(names), dict(names)
        for part in test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) else [test]:
            negated = isinstance(part, ast.UnaryOp) and isinstance(part.op, ast.Not)
            inner = part.operand if negated else part
            none = none_test(inner)
            if none and none[0] in names:
                (first if none[1] != negated else second if part is test else {})[none[0]] = PLAIN
                continue
            told = self.instance_test(inner)
            if told is not None and told[0] in names:
                name, kind = told
                (second if negated else first)[name] = kind
                if kind is TENSOR and part is test and names[name].kind == UNKNOWN_KIND:
                    (first if negated else second)[name] = PLAIN
        return first, second

    def instance_test(self, node: ast.expr) -> tuple[str, Value] | None:
        """isinstance(x, torch.Tensor), isinstance(x, (int, float)), torch.is_tensor(x)."""
        if not (isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Name)):
            return None
        name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
        if name == "is_tensor":
            return node.args[0].id, TENSOR
        if name != "isinstance" or len(node.args) < 2:
            return None
        kinds = node.args[1]
        of = [kind_of(k) for k in (kinds.elts if isinstance(kinds, ast.Tuple) else [kinds])]
        if all(k is not None and k.kind == TENSOR_KIND for k in of):
            return node.args[0].id, TENSOR
        if any(k is not None and k.kind in (TENSOR_KIND, UNKNOWN_KIND) for k in of):
            return None
        return node.args[0].id, PLAIN

    def rounds(self) -> range:
        """A loop's body is walked twice, for what one round leaves to the next; not deep inside other loops."""
        return range(2 if self.loops < _LOOPS else 1)

    def rounds_told(self, steady: set[str], found: Value | None, node: ast.AST) -> None:
        """Behind a loop whose rounds a tensor's value decides, what each round counted tells how many there were."""
        for name in self.steady:
            known = self.names.get(name)
            if found is not None and known is not None and known.kind == PLAIN_KIND:
                self.names[name] = read(found.origin or node)
        self.steady = steady | (self.steady if found is None else set())

    def while_(self, node: ast.While) -> bool:
        self.loops += 1
        steady, self.steady = self.steady, set()
        for _ in self.rounds():
            before = dict(self.names)
            found, guards = self.truth(node.test)
            if found is not None:
                arms = (node.body, node.orelse)
                self.site(node, "while", found.origin or node.test, guards, arms, node.test, found.suspected)
            conditions = list(self.conditions)  # a loop's own condition arms nothing: it is met in some round
            self.arm(node.body, found, node.test if found is not None else ast.Constant(True), loop=True)
            self.conditions = conditions
            self.merge(before)
            if self.settled(before):
                break
        self.loops -= 1
        self.rounds_told(steady, found, node.test)
        self.walk(node.orelse)
        return isinstance(node.test, ast.Constant) and bool(node.test.value) and not _breaks(node.body)

    def for_(self, node: ast.For | ast.AsyncFor) -> bool:
        self.loops += 1
        steady, self.steady = self.steady, set()
        for _ in self.rounds():
            over = self.of(node.iter)
            before = dict(self.names)
            if over.sized:
                origin = over.origin or node.iter
                self.site(node, "for", origin, arms=(node.body, []), test=node.iter, suspected=over.suspected)
            self.bind(node.target, element(over))
            conditions, self.conditions = self.conditions, list(self.conditions)
            under, in_loop = self.under, self.in_loop
            if over.sized:
                self.under, self.in_loop = over.origin or node.iter, True
            self.walk(node.body)
            self.conditions, self.under, self.in_loop = conditions, under, in_loop
            self.merge(before)
            if self.settled(before):
                break
        self.loops -= 1
        self.rounds_told(steady, over if over.sized else None, node.iter)
        self.walk(node.orelse)
        return False

    def settled(self, before: dict[str, Value]) -> bool:
        """True where another round of the loop would learn nothing of the names that it began with."""
        return all(same(value, self.names[name]) for name, value in before.items())

    def match(self, node: ast.Match) -> bool:
        subject = self.of(node.subject)
        found = subject if subject.kind in (READ_KIND, TENSOR_KIND) else None
        if found is None and subject.kind == TUPLE:
            found = next((part for part in subject.parts if part.kind in (READ_KIND, TENSOR_KIND)), None)
        if found is not None:
            arms = tuple(case.body for case in node.cases)
            self.site(node, "match", found.origin or node.subject, (), arms, node.subject)
        before, after, all_ended = dict(self.names), None, True
        for case in node.cases:
            self.names = dict(before)
            for part in ast.walk(case.pattern):
                name = getattr(part, "name", None) or getattr(part, "rest", None)
                if isinstance(name, str):
                    self.names[name] = subject if found is not None else UNKNOWN
            if case.guard is not None:
                guard, guards = self.truth(case.guard)
                if guard is not None and found is None:
                    self.site(case.guard, "match", guard.origin or case.guard, guards, (case.body,), case.guard)
            ended = self.arm(case.body, found, node.subject) if found is not None else self.walk(case.body)
            if not ended:
                all_ended = False
                after, kept = self.names, after
                if kept is not None:
                    self.merge(kept)
                    after = self.names
        self.names = after if after is not None else before
        self.merge(before)
        last = node.cases[-1].pattern if node.cases else None
        return all_ended and isinstance(last, ast.MatchAs) and last.pattern is None

    def assert_(self, node: ast.Assert) -> bool:
        found, guards = self.truth(node.test)
        if found is not None:
            self.site(node, "assert", found.origin or node.test, guards, (), node.test, found.suspected)
        else:
            told = self.instance_test(node.test)
            if told is not None and told[0] in self.names:
                self.names[told[0]] = told[1]
        return False

    def try_(self, node: ast.Try) -> bool:
        before = dict(self.names)
        ended = self.walk(node.body)
        if not ended:
            ended = self.walk(node.orelse)
        after = self.names
        for handler in node.handlers:
            self.names = dict(before)
            self.merge(after)
            if not self.walk(handler.body):
                after_handler = self.names
                self.names = after_handler if ended else after
                if not ended:
                    self.merge(after_handler)
                ended, after = False, self.names
        self.names = after
        return self.walk(node.finalbody) or ended

    # Everything else.

    def assign(self, node: ast.Assign) -> bool:
        value = self.of(node.value)
        for target in node.targets:
            self.bind(target, self.dimensions(node.value, target, self.carried(node.value, value, target)))
        return False

    def dimensions(self, node: ast.expr, target: ast.expr, value: Value) -> Value:
        """`n, d = kept.shape`: only the dimension that was selected along depends on values."""
        if value.kind == READ_KIND and isinstance(target, ast.Tuple) and is_shape(node):
            at = dynamic_dimension(value.origin)
            if at is not None:
                return Value(TUPLE, tuple(value if i == at else PLAIN for i in range(len(target.elts))))
        return value

    def carried(self, node: ast.expr, value: Value, target: ast.expr | None = None) -> Value:
        """A flag that is set under a decision on a tensor's value carries the decision along."""
        flag = isinstance(node, ast.Constant) and node.value is not None
        if not flag or self.under is None:
            return value
        if self.in_loop and isinstance(target, ast.Name):
            self.steady.add(target.id)
            return value
        return read(self.under)

    def annotated(self, node: ast.AnnAssign) -> bool:
        said = kind_of(node.annotation) or UNKNOWN
        value = self.carried(node.value, self.of(node.value), node.target) if node.value is not None else said
        if value.kind in (UNKNOWN_KIND, "never") or (said.kind == TENSOR_KIND and value.kind == PLAIN_KIND):
            value = said
        if node.value is not None or isinstance(node.target, ast.Name):
            self.bind(node.target, value)
        return False

    def augmented(self, node: ast.AugAssign) -> bool:
        value = self.of(ast.copy_location(ast.BinOp(node.target, node.op, node.value), node))
        if value.kind == PLAIN_KIND:
            value = self.carried(node.value, value, node.target)  # a count
        self.bind(node.target, value)
        return False

    def expression(self, node: ast.Expr) -> bool:
        self.of(node.value)
        return False

    def return_(self, node: ast.Return) -> bool:
        value = self.of(node.value)
        if node.value is not None:
            value = self.carried(node.value, value)
        self.record.returns = join(self.record.returns or NEVER, value)
        return True

    def raise_(self, node: ast.Raise) -> bool:
        self.of(node.exc)
        return True

    def leave(self, node: ast.Break | ast.Continue) -> bool:
        return True

    def with_(self, node: ast.With | ast.AsyncWith) -> bool:
        for item in node.items:
            value = self.of(item.context_expr)
            if item.optional_vars is not None:
                self.bind(item.optional_vars, value)
        return self.walk(node.body)

    def declare(self, node: ast.Global | ast.Nonlocal) -> bool:
        self.declared.update(node.names)
        return False

    def function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
        for decorator in node.decorator_list:
            self.of(decorator)
        self.names[node.name] = Value(FUNCTION, self.module.nested(node, self))
        return False

    def class_(self, node: ast.ClassDef) -> bool:
        self.names[node.name] = Value(CLASS, self.module.class_record(node, self))
        return False

    def import_(self, node: ast.Import) -> bool:
        for alias in node.names:
            name = alias.asname or alias.name.partition(".")[0]
            self.names[name] = self.module.imported(alias.name if alias.asname else name)
        return False

    def import_from(self, node: ast.ImportFrom) -> bool:
        base = self.module.absolute(node.module or "", node.level)
        for alias in node.names:
            self.names[alias.asname or alias.name] = self.module.imported(f"{base}.{alias.name}")
        return False


def _breaks(body: list[ast.stmt]) -> bool:
    return any(isinstance(part, ast.Break) for statement in body for part in ast.walk(statement))


_BY_STATEMENT = {
    ast.If: Statements.if_,
    ast.While: Statements.while_,
    ast.For: Statements.for_,
    ast.AsyncFor: Statements.for_,
    ast.Match: Statements.match,
    ast.Assert: Statements.assert_,
    ast.Try: Statements.try_,
    ast.TryStar: Statements.try_,
    ast.Assign: Statements.assign,
    ast.AnnAssign: Statements.annotated,
    ast.AugAssign: Statements.augmented,
    ast.Expr: Statements.expression,
    ast.Return: Statements.return_,
    ast.Raise: Statements.raise_,
    ast.Break: Statements.leave,
    ast.Continue: Statements.leave,
    ast.With: Statements.with_,
    ast.AsyncWith: Statements.with_,
    ast.Global: Statements.declare,
    ast.Nonlocal: Statements.declare,
    ast.FunctionDef: Statements.function,
    ast.AsyncFunctionDef: Statements.function,
    ast.ClassDef: Statements.class_,
    ast.Import: Statements.import_,
    ast.ImportFrom: Statements.import_from,
}
