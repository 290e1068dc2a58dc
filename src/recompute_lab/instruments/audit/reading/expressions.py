"""What kind of value an expression has, and the decisions inside expressions.

One method for each kind of syntax node. `Expressions` holds the names that are in scope; what a call
returns is in calls.py, statements are walked in statements.py.
"""

from __future__ import annotations

import ast

from recompute_lab.instruments.audit.reading import vocabulary as words
from recompute_lab.instruments.audit.reading.guards import plain
from recompute_lab.instruments.audit.reading.kinds import (
    ANY_KEY,
    CLASS,
    EXTERNAL,
    FUNCTION,
    INSTANCE,
    ITEMS,
    MAPPING,
    MASK,
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
    at_key,
    carried_read,
    element,
    items,
    join,
    joined,
    mapping,
    read,
    sized,
)
from recompute_lab.instruments.audit.reading.records import FunctionRecord, Site

_GUARDS = 5  # conditions around a line that are named, the nearest ones


class Expressions:
    def __init__(self, module, record: FunctionRecord):
        self.module, self.record = module, record
        self.names: dict[str, Value] = {}
        self.outer = record.outer
        self.conditions: list[ast.expr] = []  # around this line, and settled without a tensor
        self.declared: set[str] = set()  # global, nonlocal
        self.under: ast.AST | None = None  # the innermost enclosing decision on a tensor's value

    # Decisions.

    def site(self, node: ast.AST, form: str, origin: ast.AST | None, guards=(), arms=(), test=None, suspected=False):
        around = [condition for condition in self.conditions[-_GUARDS:] if not _is_presence(condition)]
        guards = [ast.unparse(plain(guard)) for guard in (*around, *guards)]
        self.record.sites[node] = Site(
            node, "tensor-branch", form, origin, guards, self.record, arms, test, suspected=suspected
        )

    def truth(self, node: ast.expr) -> tuple[Value | None, list[ast.expr]]:
        """The read that a condition on this expression makes, if any, and what settles it before."""
        if isinstance(node, ast.BoolOp):
            found, before, inner = None, [], []
            kept = self.names
            for value in node.values:
                one, guards = self.truth(value)
                told = self.instance_test(value) if isinstance(node.op, ast.And) else None
                if told is not None and told[0] in self.names:  # what stands behind it runs where it holds
                    self.names = self.names | {told[0]: told[1]}
                if found is not None:
                    # In `(a and x.any()) or (b and y.any())` neither a nor b is what arms it.
                    inner = inner if one is None or isinstance(node.op, ast.And) else []
                elif one is not None:
                    found, inner = one, guards
                else:
                    before.append(value if isinstance(node.op, ast.And) else ast.UnaryOp(ast.Not(), value))
            if self.names is not kept:
                bound = {part.target.id for part in ast.walk(node) if isinstance(part, ast.NamedExpr)}
                self.names = kept | {name: self.names[name] for name in bound if name in self.names}
            return found, before + inner if found is not None else []
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return self.truth(node.operand)
        value = self.of(node)
        return self.decides(value, node), []

    def decides(self, value: Value, node: ast.AST) -> Value | None:
        """The value as a read, where its truth is decided by a tensor's value."""
        if value.kind == TENSOR_KIND:
            found = read(value.origin or node)
            found.suspected = value.suspected
            return found
        if value.kind == READ_KIND:
            return value
        if value.kind in (ITEMS, MAPPING) and value.sized:
            return read(value.origin)
        if value.kind == INSTANCE:
            own = value.parts.method("__bool__") or value.parts.method("__len__")
            found = self.module.returned(own, self) if own is not None else PLAIN
            return found if found.kind == READ_KIND else None
        return None

    # Names.

    def look_up(self, name: str) -> Value | None:
        found = self.names.get(name)
        if found is not None:
            return found
        for scope in self.outer:
            if name in scope:
                return scope[name]
        return None

    def is_tensor(self, node: ast.expr) -> None:
        """The code treats this as a tensor: a name of unknown kind is one."""
        self.module.handles_tensors(self.record)
        if isinstance(node, ast.Name):
            known = self.names.get(node.id)
            if known is not None and known.kind == UNKNOWN_KIND:
                self.names[node.id] = TENSOR
                if node.id in self.record.params:
                    self.module.learned(self.record, node.id, TENSOR)

    # Expressions, by kind of node.

    def of(self, node: ast.expr | None) -> Value:
        if node is None:
            return PLAIN
        handler = _BY_NODE.get(type(node))
        return handler(self, node) if handler is not None else UNKNOWN

    def constant(self, node: ast.Constant) -> Value:
        return PLAIN

    def name(self, node: ast.Name) -> Value:
        return self.look_up(node.id) or UNKNOWN

    def attribute(self, node: ast.Attribute) -> Value:
        base, attr = self.of(node.value), node.attr
        kind = base.kind
        if attr in words.CONFIGURATION and kind in (UNKNOWN_KIND, INSTANCE):
            known = self.instance_attribute(base, attr) if kind == INSTANCE else UNKNOWN
            return known if known.kind in (TENSOR_KIND, READ_KIND) else PLAIN
        if kind == MODULE:
            return self.module.imported(f"{base.parts}.{attr}")
        if kind == INSTANCE:
            return self.instance_attribute(base, attr)
        if kind == PLAIN_KIND:
            return PLAIN
        if attr in words.META_ATTRIBUTES:
            if base.sized and attr in ("shape", "nbytes"):
                return read(base.origin)
            return PLAIN
        if kind == TENSOR_KIND:
            return base if attr in words.TENSOR_ATTRIBUTES else UNKNOWN
        if kind == READ_KIND:
            return PLAIN if attr == "size" and not base.sized else base
        if kind == MAPPING:
            return base.parts.get(attr, UNKNOWN)  # an output that is a dictionary with attributes
        if kind == CLASS:
            method = base.parts.method(attr)
            return Value(FUNCTION, method) if method else base.parts.attribute(attr)
        if kind == EXTERNAL:
            return base if attr in ("__call__", "forward") else Value(EXTERNAL, f"{base.parts}.{attr}")
        return UNKNOWN

    def instance_attribute(self, base: Value, attr: str) -> Value:
        owner = base.parts
        self.module.initialise(owner)
        if attr == "__call__" and owner.method("forward") is not None:
            attr = "forward"
        method = owner.method(attr)
        if method is not None:
            return self.module.returned(method, self) if method.property else Value(FUNCTION, method)
        owner.asked.setdefault(attr, {})[self.record] = None
        if attr == "training":
            return PLAIN
        known = self.names.get(f"self.{attr}")
        return known if known is not None else owner.attribute(attr)

    def subscript(self, node: ast.Subscript) -> Value:
        base, index = self.unpacked(self.of(node.value)), self.of(node.slice)
        kind = base.kind
        if kind == READ_KIND and is_shape(node.value) and is_fixed(node.slice, base.origin):
            return PLAIN
        if isinstance(node.slice, ast.Compare) and self.module.has_torch:  # x[x > 0]: no list takes that
            if kind == TENSOR_KIND or (kind == UNKNOWN_KIND and not self.module.uses_arrays(self.record)):
                base, index, kind = TENSOR, MASK, TENSOR_KIND
            elif kind == READ_KIND:
                kept = Value(READ_KIND, None, base.origin, sized=True)
                return kept
        if kind == TENSOR_KIND or (kind == UNKNOWN_KIND and _selects(index)):
            return self.selected(node, base, index)
        if kind == READ_KIND:
            return base
        by_value = index.kind in (READ_KIND, TENSOR_KIND)
        if kind in (ITEMS, TUPLE, MAPPING):
            by_value = by_value and not (kind == MAPPING and index.kind == TENSOR_KIND)  # a key goes by its hash
            if by_value and isinstance(node.ctx, ast.Load) and chooses(base):
                self.site(node, "index", index.origin or node.slice, suspected=index.suspected)
            if kind == MAPPING:
                return at_key(base, node.slice.value if isinstance(node.slice, ast.Constant) else ANY_KEY)
            if isinstance(node.slice, ast.Slice):
                if kind == TUPLE and not by_value:
                    return items(joined(base.parts))
                return base
            at = _position(node.slice)
            if kind == TUPLE and at is not None and -len(base.parts) <= at < len(base.parts):
                return base.parts[at]
            return element(base)
        if kind == PLAIN_KIND:
            return read(index.origin or node.slice) if by_value else PLAIN
        return UNKNOWN

    def selected(self, node: ast.Subscript, base: Value, index: Value) -> Value:
        """Part of a tensor: of a size that depends on values where a mask or a number that was read selects it."""
        parts = index.parts if index.kind == TUPLE else (index,)
        for part in parts:
            if part.mask or part.sized or (part.kind == READ_KIND and part.mask):
                if part.mask or isinstance(node.slice, ast.Slice):
                    self.record.sizes.add(node)
                return sized(part.origin or node)
        if base.sized and isinstance(node.slice, (ast.Constant, ast.UnaryOp)):
            return TENSOR
        return base

    def slice(self, node: ast.Slice) -> Value:
        """`sized` where a bound was read from a tensor."""
        for bound in (node.lower, node.upper, node.step):
            if bound is not None:
                value = self.of(bound)
                if value.kind in (READ_KIND, TENSOR_KIND):
                    return Value(PLAIN_KIND, None, value.origin or bound, sized=True)
        return PLAIN

    def binary(self, node: ast.BinOp) -> Value:
        a, b = self.of(node.left), self.of(node.right)
        kinds = (a.kind, b.kind)
        if TENSOR_KIND in kinds:
            if (
                isinstance(node.op, ast.Mod)
                and isinstance(node.left, (ast.Constant, ast.JoinedStr))
                and _text(node.left)
            ):
                return PLAIN
            if a.sized or b.sized:
                return a if a.sized else b
            masks = [v.mask for v in (a, b) if v.kind == TENSOR_KIND]
            return MASK if any(masks) and isinstance(node.op, (ast.BitAnd, ast.BitOr, ast.BitXor)) else TENSOR
        if READ_KIND in kinds:
            if UNKNOWN_KIND in kinds:
                return UNKNOWN  # a number times an unknown may be a tensor, or a list
            return a if a.kind == READ_KIND else b
        if kinds == (PLAIN_KIND, PLAIN_KIND):
            return PLAIN
        if isinstance(node.op, ast.Add) and a.kind in (ITEMS, TUPLE) and b.kind in (ITEMS, TUPLE):
            if a.kind == b.kind == TUPLE:
                return Value(TUPLE, a.parts + b.parts)
            if a.kind == TUPLE:
                return a  # the first parts keep their places
            origin = a.origin if a.sized else b.origin
            return items(join(element(a), element(b)), origin, sized=a.sized or b.sized)
        if isinstance(node.op, ast.Mult) and ITEMS in kinds:
            return a if a.kind == ITEMS else b
        return UNKNOWN

    def unary(self, node: ast.UnaryOp) -> Value:
        value = self.of(node.operand)
        if isinstance(node.op, ast.Not):
            return self.decides(value, node.operand) or PLAIN
        return value

    def compare(self, node: ast.Compare) -> Value:
        left = self.of(node.left)
        values = [left, *map(self.of, node.comparators)]
        kinds = {value.kind for value in values}
        if all(isinstance(op, (ast.Is, ast.IsNot)) for op in node.ops):
            return PLAIN
        if any(isinstance(op, (ast.In, ast.NotIn)) for op in node.ops):
            return self.membership(node, values)
        if any(_text(part) for part in (node.left, *node.comparators)):
            return PLAIN
        if TENSOR_KIND in kinds:
            if len(node.ops) > 1:
                # a < b < c is (a < b) and (b < c)
                return read(node)
            whole = next((value for value in values if value.sized), None)
            return Value(TENSOR_KIND, None, whole.origin, sized=True, mask=True) if whole else MASK
        for value in values:
            if value.kind == READ_KIND:
                return value
            if value.kind == ITEMS and value.parts.kind == READ_KIND:
                return value.parts
        return PLAIN if kinds <= {PLAIN_KIND, ITEMS, TUPLE, MAPPING, MODULE} else UNKNOWN

    def membership(self, node: ast.Compare, values: list[Value]) -> Value:
        left, right = values[0], values[-1]
        hashes = right.kind == MAPPING or right.hashed
        if left.kind == TUPLE:
            left = carried_read(left) or left
        if left.kind == TENSOR_KIND and hashes:
            return PLAIN  # found by its hash, which is that of the object: no value is read
        if left.kind == READ_KIND:
            return left
        if left.kind == TENSOR_KIND or (right.kind == TENSOR_KIND and not _text(node.left)):
            found = read(node)
            found.suspected = right.kind == UNKNOWN_KIND  # in a list it is compared; a set or a dictionary hashes it
            return found
        if right.kind == ITEMS and right.parts.kind == READ_KIND:
            return right.parts
        return right if right.kind == READ_KIND else PLAIN

    def bool_op(self, node: ast.BoolOp) -> Value:
        """`a or b` used as a value: all but the last are decided on."""
        values, before, last = [], [], len(node.values) - 1
        found = None
        for number, part in enumerate(node.values):
            value = self.of(part)
            values.append(value)
            if number < last and found is None:
                found = self.decides(value, part)
                if found is None:
                    before.append(part)
                elif any(map(_does_something, node.values[number + 1 :])):
                    self.site(node, "and/or", found.origin or part, before, test=node, suspected=found.suspected)
        if found is not None and values[-1].kind in (PLAIN_KIND, UNKNOWN_KIND):
            return found
        if found is not None and values[-1].kind == TENSOR_KIND and all(v.kind == TENSOR_KIND for v in values):
            return read(found.origin)
        return joined(values)

    def ternary(self, node: ast.IfExp) -> Value:
        if traces(node.test):
            return self.of(node.orelse)
        found, guards = self.truth(node.test)
        if found is None:
            none = _none_test(node.test)
            if none and none[0] in self.names:
                return self.with_none(node, *none)
        else:
            arms = ([ast.Expr(node.body)], [ast.Expr(node.orelse)])
            self.site(node, "ternary", found.origin or node.test, guards, arms, node.test, found.suspected)
        body = self.on_condition(node.test if found is None else None, node.body)
        value = join(body, self.on_condition(ast.UnaryOp(ast.Not(), node.test) if found is None else None, node.orelse))
        if found is not None and value.kind == PLAIN_KIND:
            return found  # one of two plain values, chosen by a tensor's
        return value

    def on_condition(self, condition: ast.expr | None, node: ast.expr) -> Value:
        """The arm of a ternary whose condition is settled without a tensor."""
        if condition is None:
            return self.of(node)
        self.conditions.append(condition)
        value = self.of(node)
        self.conditions.pop()
        return value

    def with_none(self, node: ast.IfExp, name: str, is_none: bool) -> Value:
        """`a if x is None else b`: x is None in one of the two."""
        kept = self.names[name]
        first = second = kept
        if is_none:
            first = PLAIN
        else:
            second = PLAIN
        self.names[name] = first
        body = self.of(node.body)
        self.names[name] = second
        orelse = self.of(node.orelse)
        self.names[name] = kept
        return join(body, orelse)

    def named(self, node: ast.NamedExpr) -> Value:
        value = self.of(node.value)
        self.names[node.target.id] = value
        return value

    def tuple(self, node: ast.Tuple) -> Value:
        if any(isinstance(part, ast.Starred) for part in node.elts):
            return items(joined(self.of(part) for part in node.elts))
        return Value(TUPLE, tuple(map(self.of, node.elts)))

    def list(self, node: ast.List | ast.Set) -> Value:
        return items(joined(map(self.of, node.elts)), hashed=isinstance(node, ast.Set))

    def dict(self, node: ast.Dict) -> Value:
        values = [self.of(value) for value in node.values]
        for key in node.keys:
            if key is not None and not isinstance(key, ast.Constant):
                self.of(key)
        if node.keys and all(isinstance(key, ast.Constant) for key in node.keys):
            return mapping({key.value: value for key, value in zip(node.keys, values, strict=True)})
        return mapping({ANY_KEY: joined(values)} if values else {})

    def starred(self, node: ast.Starred) -> Value:
        return element(self.of(node.value))

    def inner(self, node: ast.Await | ast.YieldFrom) -> Value:
        return self.of(node.value)

    def yielded(self, node: ast.Yield) -> Value:
        value = self.of(node.value)
        self.record.returns = join(self.record.returns or NEVER, items(value))
        return UNKNOWN

    def text(self, node: ast.JoinedStr) -> Value:
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                self.of(part.value)
        return PLAIN

    def comprehension(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp) -> Value:
        kept = dict(self.names)
        origin, by_value = None, False
        for part in node.generators:
            over = self.of(part.iter)
            if over.sized:
                by_value, origin = True, origin or over.origin or part.iter
                self.site(node, "for", origin, test=part.iter)
            self.bind(part.target, element(over))
            for condition in part.ifs:
                found, guards = self.truth(condition)
                if found is not None:
                    by_value, origin = True, origin or found.origin or condition
                    self.site(node, "filter", found.origin or condition, guards, test=condition)
        if isinstance(node, ast.DictComp):
            self.of(node.key)
            value = self.of(node.value)
        else:
            value = self.of(node.elt)
        self.names = kept
        if isinstance(node, ast.DictComp):
            return mapping({ANY_KEY: value}, origin, sized=by_value)
        return items(value, origin, sized=by_value, hashed=isinstance(node, ast.SetComp))

    def lambda_(self, node: ast.Lambda) -> Value:
        return Value(FUNCTION, self.module.nested(node, self))

    def bind(self, target: ast.expr, value: Value) -> None:
        """Assign to a name, to a pattern of names, to an attribute or an element."""
        if isinstance(target, ast.Name):
            self.names[target.id] = value
            if target.id in self.declared:
                self.module.rebound(target.id, value, self)
        elif isinstance(target, (ast.Tuple, ast.List)):
            value = self.unpacked(value)
            parts = value.parts if value.kind == TUPLE else ()
            whole = len(parts) == len(target.elts) and not any(isinstance(t, ast.Starred) for t in target.elts)
            of = element(value) if not whole else None
            for number, part in enumerate(target.elts):
                self.bind(part, parts[number] if whole else of)
        elif isinstance(target, ast.Starred):
            self.bind(target.value, items(value))
        elif isinstance(target, ast.Attribute):
            base = self.of(target.value)
            if base.kind == INSTANCE:
                self.module.assigned(base.parts, target.attr, value, self.record)
                if isinstance(target.value, ast.Name) and target.value.id == "self":
                    self.names[f"self.{target.attr}"] = value
            elif base.kind == UNKNOWN_KIND and target.attr == "data":
                self.is_tensor(target.value)
        elif isinstance(target, ast.Subscript):
            base = self.of(target.value)
            self.of(target.slice)
            self.put(target.value, base, target.slice, value)

    def unpacked(self, value: Value) -> Value:
        """A named tuple as the tuple that it is."""
        if value.kind != INSTANCE or not value.parts.is_named_tuple:
            return value
        return Value(TUPLE, tuple(self.instance_attribute(value, name) for name in value.parts.all_fields()))

    def put(self, holder: ast.expr, base: Value, index: ast.expr | None, value: Value) -> None:
        """A container takes one more element. Under a decision on a tensor's value its length depends on it too."""
        if base.kind == MAPPING and index is not None:
            key = index.value if isinstance(index, ast.Constant) else ANY_KEY
            value = join(base.parts.get(key, NEVER), value) if key is ANY_KEY else value
            self.hold(holder, mapping(base.parts | {key: value}, base.origin, sized=base.sized))
        elif base.kind in (ITEMS, TUPLE):
            of = join(element(base), value)
            by_value = base.sized or (self.under is not None and index is None)
            origin = base.origin or (self.under if by_value else None)
            self.hold(holder, items(of, origin, sized=by_value, hashed=base.hashed))

    def hold(self, holder: ast.expr, container: Value) -> None:
        """The container, with what it has taken, under its name or as its object's attribute."""
        if isinstance(holder, ast.Name):
            self.names[holder.id] = container
        elif isinstance(holder, ast.Attribute):
            owner = self.of(holder.value)
            if owner.kind == INSTANCE and owner.parts.attribute(holder.attr).kind == container.kind:
                self.module.assigned(owner.parts, holder.attr, container, self.record)

    def call(self, node: ast.Call) -> Value:
        raise NotImplementedError  # calls.py

    def instance_test(self, node: ast.expr) -> tuple[str, Value] | None:
        raise NotImplementedError  # statements.py


def _position(node: ast.expr) -> int | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
        return -node.operand.value if isinstance(node.operand.value, int) else None
    return None


def _selects(index: Value) -> bool:
    """True where an index picks a part whose size depends on values."""
    return index.mask or index.sized or (index.kind == TUPLE and any(map(_selects, index.parts)))


def is_shape(node: ast.expr) -> bool:
    """x.shape, x.size()."""
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Attribute) and node.func.attr == "size" and not node.args
    return isinstance(node, ast.Attribute) and node.attr == "shape"


def dynamic_dimension(origin: ast.AST | None) -> int | None:
    """The only dimension whose size depends on values, where that can be told from how the tensor was made."""
    if isinstance(origin, ast.Subscript):
        return None if isinstance(origin.slice, ast.Tuple) else 0
    if isinstance(origin, ast.Call):
        name = getattr(origin.func, "attr", "")
        if name in ("nonzero", "argwhere"):
            return 0
        if name == "repeat_interleave":
            dim = next((k.value for k in origin.keywords if k.arg == "dim"), None)
            dim = dim if dim is not None else origin.args[-1] if len(origin.args) > 1 else None
            at = _position(dim) if dim is not None else 0
            return at if at is not None and at >= 0 else None
    return None


def is_fixed(at: ast.expr, origin: ast.AST | None) -> bool:
    """True where this dimension of what was selected has the same size, whatever the values."""
    dynamic, at = dynamic_dimension(origin), _position(at)
    return dynamic is not None and at is not None and at != dynamic and (at >= 0 or dynamic == 0)


def _text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes)))


def chooses(container: Value) -> bool:
    """True where taking one element rather than another changes what runs: functions, layers, tensors."""
    of = at_key(container) if container.kind == MAPPING else element(container)
    return of.kind not in (PLAIN_KIND, READ_KIND, "never", UNKNOWN_KIND)


def _does_something(node: ast.expr) -> bool:
    """False for what has no effect however often it is evaluated: `hit or False`, `a or b` of two names."""
    return any(isinstance(part, (ast.Call, ast.BinOp, ast.Await)) for part in ast.walk(node))


def _none_test(node: ast.expr) -> tuple[str, bool] | None:
    """The name in `x is None` or `x is not None`, and whether it is the first."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.left, ast.Name):
        right = node.comparators[0]
        if isinstance(right, ast.Constant) and right.value is None and isinstance(node.ops[0], (ast.Is, ast.IsNot)):
            return node.left.id, isinstance(node.ops[0], ast.Is)
    return None


def _is_presence(node: ast.expr) -> bool:
    """Whether an argument is there, or of which type: true or false for good, but no switch that arms anything."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return _is_presence(node.operand)
    if isinstance(node, ast.BoolOp):
        return all(map(_is_presence, node.values))
    return (
        isinstance(node, ast.Constant)
        or _none_test(node) is not None
        or (
            isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("isinstance", "hasattr")
        )
    )


def traces(node: ast.expr) -> bool:
    """`torch.jit.is_tracing()` and its like: not true in a training run."""
    if not isinstance(node, ast.Call):
        return False
    return (node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")) in words.TRACING


none_test = _none_test
is_text = _text

_BY_NODE = {
    ast.Constant: Expressions.constant,
    ast.Name: Expressions.name,
    ast.Attribute: Expressions.attribute,
    ast.Subscript: Expressions.subscript,
    ast.Slice: Expressions.slice,
    ast.BinOp: Expressions.binary,
    ast.UnaryOp: Expressions.unary,
    ast.Compare: Expressions.compare,
    ast.BoolOp: Expressions.bool_op,
    ast.IfExp: Expressions.ternary,
    ast.NamedExpr: Expressions.named,
    ast.Tuple: Expressions.tuple,
    ast.List: Expressions.list,
    ast.Set: Expressions.list,
    ast.Dict: Expressions.dict,
    ast.Starred: Expressions.starred,
    ast.Await: Expressions.inner,
    ast.YieldFrom: Expressions.inner,
    ast.Yield: Expressions.yielded,
    ast.JoinedStr: Expressions.text,
    ast.ListComp: Expressions.comprehension,
    ast.SetComp: Expressions.comprehension,
    ast.GeneratorExp: Expressions.comprehension,
    ast.DictComp: Expressions.comprehension,
    ast.Lambda: Expressions.lambda_,
    ast.Call: lambda self, node: self.call(node),
}
