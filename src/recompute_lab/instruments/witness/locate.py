"""In which line is it written, or read?"""

from __future__ import annotations

import dis
import inspect
import os
import sys
from collections.abc import Callable, Iterator
from types import CodeType

from torch import nn

from recompute_lab.instruments.reach import Reach
from recompute_lab.instruments.witness.trace import TORCH, is_users, place

_LAYERS = os.path.join(TORCH, "nn", "modules")
_CALLERS = tuple(os.path.join(_LAYERS, name) for name in ("module.py", "container.py"))  # where every layer passes
_INSTRUMENTS = os.path.dirname(os.path.dirname(__file__)) + os.sep
_MOST_LINES = 20_000


def first_writes(run: Callable[[], object], fingerprints: dict[str, Callable[[], object]]) -> dict[str, str]:
    """Run it, and name for each of `fingerprints` the line after which it was first another than before.

    Lines of torch's own layers count only where no other line was seen. Nothing else than `run` is executed, and what
    it raises ends the search. Whatever traces lines at the time (a debugger, a coverage tool) goes on afterwards.
    """
    found: dict[str, str] = {}
    start = {name: look() for name, look in fingerprints.items()}
    last: tuple[CodeType, int] | None = None
    outside: tuple[CodeType, int] | None = None
    budget = _MOST_LINES

    def compare() -> None:
        nonlocal budget
        budget -= 1
        if last is None or budget < 0:
            return
        for name, look in fingerprints.items():
            if name not in found and look() != start[name]:
                found[name] = place(*(outside or last))

    def line(frame, event, argument):
        nonlocal last, outside
        compare()
        if len(found) == len(fingerprints) or budget < 0:
            return None
        last = frame.f_code, frame.f_lineno
        if is_users(frame.f_code.co_filename):
            outside = last
        return line

    def call(frame, event, argument):
        file = frame.f_code.co_filename
        layer = file.startswith(_LAYERS) and file not in _CALLERS
        return line if layer or (is_users(file) and not file.startswith(_INSTRUMENTS)) else None

    before = sys.gettrace()
    try:
        sys.settrace(call)
        run()
    except Exception:
        pass
    finally:
        sys.settrace(before)
    compare()
    return found


def mention(segment: Callable, args: tuple, kwargs: dict, name: str) -> str:
    """The first line in the segment's own code that names the last part of `name`; "" where none does."""
    wanted = name.rpartition(".")[2].partition("[")[0].rstrip("'")
    for code in codes_of(segment, args, kwargs):
        if not is_users(code.co_filename):
            continue
        for line, used in _names_by_line(code):
            if used == wanted:
                return place(code, line)
    return ""


def begins(segment: Callable) -> str:
    """Where the segment's forward is defined."""
    function = segment.forward if isinstance(segment, nn.Module) else segment
    function = inspect.unwrap(getattr(function, "__func__", function))  # a decorator is not where it begins
    code = getattr(function, "__code__", None)
    return place(code, code.co_firstlineno) if code and is_users(code.co_filename) else ""


def codes_of(segment: Callable, args: tuple = (), kwargs: dict | None = None) -> Iterator[CodeType]:
    """The code that the segment can reach, its own first."""
    seen: set[CodeType] = set()
    for function in Reach.of(segment, *args, **(kwargs or {})).functions:
        todo = [function.__code__]
        while todo:
            code = todo.pop()
            if code in seen:
                continue
            seen.add(code)
            yield code
            todo += [const for const in code.co_consts if isinstance(const, CodeType)]


def _names_by_line(code: CodeType) -> Iterator[tuple[int, str]]:
    line = code.co_firstlineno
    for step in dis.get_instructions(code):
        if step.positions and step.positions.lineno:
            line = step.positions.lineno
        if isinstance(step.argval, str) and step.opname.startswith(("LOAD_", "STORE_")):
            yield line, step.argval
