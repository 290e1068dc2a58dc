"""Lesson 10: twelve drills, each a faulty step: say what happens (`check.say_NAME`), repair it (`check.mend_NAME`)."""

from __future__ import annotations

from functools import partial

from recompute_lab.lessons.drills import (
    adaptive,
    balance,
    codebook,
    depth,
    jitter,
    locked,
    memo,
    memory,
    probe,
    recurrent,
    residual,
    route,
)
from recompute_lab.lessons.drills.drill import Drill, OfAClass
from recompute_lab.lessons.drills.look import look
from recompute_lab.lessons.drills.measure import WORDS
from recompute_lab.lessons.drills.properties import mended
from recompute_lab.lessons.drills.say import said
from recompute_lab.lessons.exercise import Exercise, Exercises, Hints

# In the order of the notebook: rising in difficulty.
DRILLS: tuple[Drill, ...] = tuple(
    part.DRILL
    for part in (
        jitter,
        residual,
        depth,
        locked,
        balance,
        probe,
        memo,
        memory,
        codebook,
        adaptive,
        route,
        recurrent,
    )
)

__all__ = ["DRILLS", "check", "hint", "look", "table", "words"]

check = Exercises()
hint = Hints(check)
for _drill in DRILLS:
    for _exercise in (
        Exercise(f"say_{_drill.name}", partial(said, _drill), _drill.hints_say),
        OfAClass(f"mend_{_drill.name}", partial(mended, _drill), _drill.hints_mend),
    ):
        check.all[_exercise.name] = _exercise


def table() -> str:
    """The drills as a table in Markdown, in their order."""
    rows = [f"| {n} | {d.title} | {d.minutes} | {d.topic} | {d.level} |" for n, d in enumerate(DRILLS, 1)]
    return "\n".join(["| | drill | minutes | topic | level |", "|---|---|---|---|---|", *rows])


def words() -> str:
    """The vocabulary, a word and its meaning a line."""
    return "\n".join(f"{word:<16} {meaning}" for word, meaning in WORDS.items())
