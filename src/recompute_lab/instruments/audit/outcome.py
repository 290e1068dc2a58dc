"""What a decision decides: which operations run, whether an exception is raised, what is kept, what is logged.

graph      which operations run, and so which tensors exist: the case that breaks a checkpoint
raise      only whether an exception is raised
shape      only a size
state      only what is kept: an attribute, a buffer, a Python number
telemetry  only what is logged or counted, and read by nothing else in the class
"""

from __future__ import annotations

import ast
import re

from recompute_lab.instruments.audit.reading import vocabulary as words
from recompute_lab.instruments.audit.reading.records import ClassRecord, Site

_LOGGER = re.compile(r"log|warn|writer|wandb|tqdm|console|print", re.IGNORECASE)
_WEIGHT = {"graph": 4, "raise": 3, "state": 2, "telemetry": 1}


def decides(site: Site) -> str:
    if site.rule == "lasting-write":
        return "state"
    if isinstance(site.node, ast.Assert):
        return "raise"
    if site.form == "ternary":
        return "state" if all(map(_is_number, (arm[0].value for arm in site.arms))) else "graph"
    effects = {effect for arm in site.arms for effect in _effects(arm, site.function.owner)}
    if not site.arms:
        return "graph"
    return max(effects, key=_WEIGHT.get) if effects else "telemetry"


def _effects(body: list[ast.stmt], owner: ClassRecord | None) -> set[str]:
    found = set()
    for node in body:
        if isinstance(node, ast.Raise):
            found.add("raise")
        elif isinstance(node, ast.Pass) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
            continue
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            found.add(_effect_of_call(node.value))
        elif isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {_effect_of_write(target, node, owner) for target in targets}
        elif isinstance(node, ast.Assert):
            found.add("raise")
        elif isinstance(node, (ast.If, ast.For, ast.While, ast.With)):
            found |= _effects(node.body, owner) | _effects(getattr(node, "orelse", []), owner)
        else:
            found.add("graph")
    return found


def _effect_of_call(node: ast.Call) -> str:
    func = node.func
    name = func.id if isinstance(func, ast.Name) else getattr(func, "attr", "")
    if name in words.LOGS and (isinstance(func, ast.Name) or _LOGGER.search(ast.unparse(func.value))):
        return "telemetry"
    # A method that changes what is kept: self.seen.add_(1), self.found.append(x).
    if isinstance(func, ast.Attribute) and _root(func.value) == "self" and (
        name.endswith("_") or name in ("append", "add", "update", "extend", "clear")
    ):  # fmt: skip
        return "state"
    return "graph"


def _effect_of_write(target: ast.expr, node: ast.stmt, owner: ClassRecord | None) -> str:
    if isinstance(target, ast.Attribute) and _root(target) == "self":
        counted = isinstance(node, ast.AugAssign) or _is_number(node.value)
        read_elsewhere = owner is not None and target.attr in owner.read_attributes
        return "telemetry" if counted and not read_elsewhere else "state"
    if isinstance(target, ast.Subscript) and _root(target) == "self":
        return "state"
    return "state" if _is_number(getattr(node, "value", None)) and isinstance(target, ast.Name) else "graph"


def _is_number(node: ast.expr | None) -> bool:
    """A constant, or what is read out of a tensor as a number."""
    if isinstance(node, ast.UnaryOp):
        return _is_number(node.operand)
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Attribute):
            return node.func.attr == "item"
        return isinstance(node.func, ast.Name) and node.func.id in ("int", "float", "bool", "str", "len")
    return isinstance(node, (ast.Constant, ast.JoinedStr))


def _root(node: ast.expr) -> str | None:
    while isinstance(node, (ast.Attribute, ast.Subscript, ast.Call)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else None
