"""Is a function ever inside a checkpoint? Across files, by names.

Each file says which of its functions it gives to a checkpoint, and what each of them calls. From there it
follows the calls. Nothing found is "not seen", never "no": a call through a registry, a wrapper that a
training script applies, a string in a configuration leave no trace in the source.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from recompute_lab.instruments.audit.reading.module import Module
from recompute_lab.instruments.audit.reading.records import ClassRecord, FunctionRecord
from recompute_lab.instruments.audit.reading.vocabulary import CHECKPOINTED_BASES


@dataclass
class Links:
    """What one file knows, as plain strings, so that another process can send it: dotted names throughout."""

    calls: dict[str, set[str]] = field(default_factory=dict)  # a function, and what it calls or constructs
    forwards: dict[str, list[str]] = field(default_factory=dict)  # a class, and its forward, or its bases to ask
    twice: set[str] = field(default_factory=set)
    inherits: dict[str, list[str]] = field(default_factory=dict)


def links(module: Module) -> Links:
    found = Links()

    def key(one: object) -> str:
        if isinstance(one, (FunctionRecord, ClassRecord)):
            return f"{module.dotted}.{one.name}"
        return str(one)

    for record in module.functions.values():
        callees = {key(called) for called in record.calls}
        if callees:
            found.calls.setdefault(key(record), set()).update(callees)
        if record.parent is not None and record.parent.node is not module.tree:
            # A function inside a function runs when the outer one does, as far as anybody can tell.
            found.calls.setdefault(key(record.parent), set()).add(key(record))
    for owner in module.classes.values():
        found.inherits[key(owner)] = [
            key(base.parts) for base in owner.bases if base.kind in ("class", "external", "module")
        ]
        forward = owner.methods.get("forward") or owner.methods.get("__call__")
        if forward is not None:
            found.forwards[key(owner)] = [key(forward)]
        init = owner.methods.get("__init__")
        if init is not None and forward is not None:
            # What a layer constructs, its forward calls.
            made = {key(called) for called in init.calls if isinstance(called, (ClassRecord, str))}
            found.calls.setdefault(key(forward), set()).update(made)
    found.twice = {key(given) for given in module.twice}
    return found


class Reach:
    """The functions of all files that a checkpoint runs: directly, or because something that calls them is run."""

    def __init__(self, files: Iterable[Links]):
        self.calls: dict[str, set[str]] = {}
        self.forwards: dict[str, list[str]] = {}
        self.inherits: dict[str, list[str]] = {}
        twice: set[str] = set()
        for one in files:
            for name, callees in one.calls.items():
                self.calls.setdefault(name, set()).update(callees)
            self.forwards.update(one.forwards)
            self.inherits.update(one.inherits)
            twice |= one.twice
        self.by_last: dict[str, set[str]] = {}
        for name in self.inherits:
            self.by_last.setdefault(name.rsplit(".", 1)[-1], set()).add(name)
        twice |= {name for name in self.inherits if self._has_base(name, CHECKPOINTED_BASES)}
        self.direct = {function for name in twice for function in self._functions(name)}
        self.parent: set[str] = set()
        queue = list(self.direct)
        while queue:
            for callee in self.calls.get(queue.pop(), ()):
                for function in self._functions(callee):
                    if function not in self.direct and function not in self.parent:
                        self.parent.add(function)
                        queue.append(function)

    def verdict(self, function: str) -> str:
        return "direct" if function in self.direct else "parent" if function in self.parent else "not seen"

    def _functions(self, name: str) -> list[str]:
        """A function is itself; a class is its forward, its own or that of a base."""
        seen, queue = set(), [name]
        while queue:
            one = self._class(queue.pop(0))
            if one in seen:
                continue
            seen.add(one)
            if one in self.forwards:
                return self.forwards[one]
            if one not in self.inherits:
                if one == name:
                    return [name]
                continue
            queue += self.inherits[one]
        return []

    def _class(self, name: str) -> str:
        """A class that was imported through another module is found by its own name, if only one has it."""
        if name in self.inherits or name in self.calls:
            return name
        same = self.by_last.get(name.rsplit(".", 1)[-1], ())
        return next(iter(same)) if len(same) == 1 else name

    def _has_base(self, name: str, wanted: frozenset[str]) -> bool:
        seen, queue = set(), list(self.inherits.get(name, ()))
        while queue:
            base = queue.pop()
            if base.rsplit(".", 1)[-1] in wanted:
                return True
            if base not in seen:
                seen.add(base)
                queue += self.inherits.get(self._class(base), ())
        return False
