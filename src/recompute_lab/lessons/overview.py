"""Where the learner stands: the checks passed of each lesson, when, and the interview cards that are due."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path

from recompute_lab.lessons import spacing
from recompute_lab.lessons.cards import Deck, load
from recompute_lab.lessons.progress import NOT_KEPT, Graded, Journal, Passed, session_journal, utc_now


def catalogue() -> dict[str, list[str]]:
    """The exercises of each lesson, by its number; read from the lessons' source, since importing them takes long."""
    found: dict[str, list[str]] = {}
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        tree, package = (ast.parse(file.read_text(encoding="utf-8")) for file in (path, path.parent / "__init__.py"))
        told = (re.match(r"Lesson (\d\d)\b", ast.get_docstring(text) or "") for text in (tree, package))
        if lesson := next(filter(None, told), None):
            found.setdefault(lesson[1], []).extend(_exercises(tree))
    return {lesson: names for lesson, names in sorted(found.items()) if names}


def _exercises(tree: ast.Module) -> Iterator[str]:
    """What is decorated with `check.add(...)`, or given to it as in `check.add(...)(function)`; a `Drill` has two."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and any(map(_adds, node.decorator_list)):
            yield node.name
        elif isinstance(node, ast.Assign) and ast.unparse(node).startswith("DRILL = Drill("):
            name = next(given.value.value for given in node.value.keywords if given.arg == "name")
            yield from (f"say_{name}", f"mend_{name}")
        elif isinstance(node, ast.Expr | ast.Assign) and isinstance(node.value, ast.Call) and _adds(node.value.func):
            (given,) = node.value.args
            yield given.attr if isinstance(given, ast.Attribute) else given.id


def _adds(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "add"


def overview(journal: Journal | None = None, deck: Deck | None = None, clock: Callable[[], datetime] = utc_now) -> str:
    """A table, a line for each lesson: checks passed of all, the days of the first and the last, cards due of all.

    By default it is about this session's journal; where none is kept, a sentence says so instead.
    """
    if journal is None and (journal := session_journal()).path is None:
        return NOT_KEPT
    events, cards, exercises = journal.events(), (deck or load()).cards, catalogue()
    now = clock()
    due = spacing.due_times((event for event in events if isinstance(event, Graded)), now)
    ready = Counter(card.notebook[:2] for card in cards if card.id in due and due[card.id] <= now)
    seen = Counter(card.notebook[:2] for card in cards if card.id in due)
    there = Counter(card.notebook[:2] for card in cards)
    lines = [("lesson", "checks passed", "first", "last", "cards due", "cards seen")]
    total = 0
    for lesson in sorted({*exercises, *there}):
        names = exercises.get(lesson, [])
        days: dict[str, datetime] = {}
        for event in events:
            if isinstance(event, Passed) and event.lesson == lesson and event.exercise in names:
                days.setdefault(event.exercise, event.at)
        total += len(days)
        first, last = (f"{pick(days.values()).astimezone():%Y-%m-%d}" if days else "" for pick in (min, max))
        of_cards = f"{seen[lesson]} of {there[lesson]}" if there[lesson] else ""
        lines.append((lesson, f"{len(days)} of {len(names)}", first, last, str(ready[lesson] or ""), of_cards))
    sums = (f"{total} of {sum(map(len, exercises.values()))}", "", "", str(sum(ready.values())))
    lines.append(("all", *sums, f"{sum(seen.values())} of {len(cards)}"))
    table = ["{:<8}{:<15}{:<12}{:<12}{:<11}{}".format(*line).rstrip() for line in lines]
    return "\n".join([*table, *journal.notes()])
