"""A look at any step, in the drills' words."""

from __future__ import annotations

from recompute_lab.instruments.steps import plainly, stepped
from recompute_lab.lessons.drills.drill import Make
from recompute_lab.lessons.drills.measure import OTHER, RIGHT, error_of, others, row


def look(make: Make) -> None:
    """Print what becomes of a step of what `make()` makes: plainly, and under both implementations.

    Of the plain run it can say whether it raises; what the step is for it does not know.
    """
    try:
        plain, seen = stepped(make, plainly), {"plain": (RIGHT, "it runs")}
    except Exception as error:
        plain, seen = None, {"plain": (OTHER, f"it raises {error_of(error)}")}
    if plain is not None:
        seen |= others(make, plain)
    for name, (word, sight) in seen.items():
        print(row(name, word, sight))
