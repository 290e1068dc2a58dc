"""Part (a) of every drill: what happens, held against what is measured when the answer is checked."""

from __future__ import annotations

from recompute_lab.lessons.drills.drill import Drill
from recompute_lab.lessons.drills.measure import NO_USE, OTHER, RIGHT, RUNS, WORDS, closed, measured, row
from recompute_lab.lessons.exercise import Wrong

_OF_PLAIN = (RIGHT, NO_USE, OTHER)


def said(drill: Drill, answer: dict) -> str:
    """`answer` has a word for "plain", "reentrant" and "non-reentrant"; raises `Wrong` where one was not measured."""
    if not isinstance(answer, dict) or set(answer) != set(RUNS):
        raise Wrong(f"answer with a dict: one word each for {', '.join(map(repr, RUNS))}.")
    words = {run: _word(run, answer[run]) for run in RUNS}
    for number, (staged, _) in enumerate(drill.staged):
        found = measured(drill, number)
        for run in RUNS:
            word, seen = found[run]
            if words[run] != word:
                when = f", {staged}" if staged else ""
                raise Wrong(f"{run}{when}: you said {words[run]!r}; run, it is {word!r}: {closed(seen)}")
    return "\n".join(["it ran as you said.", *(row(run, *told) for run, told in found.items())])


def _word(run: str, given) -> str:
    told = " ".join(given.casefold().replace(":", ": ").split()) if isinstance(given, str) else given
    told = told.replace(" :", ":") if isinstance(told, str) else told
    if not isinstance(told, str) or told not in WORDS:
        raise Wrong(f"{run}: {given!r} is none of the words: {', '.join(map(repr, WORDS))}.")
    if run == "plain" and told not in _OF_PLAIN:
        raise Wrong(
            f"plain: the others are compared with the plain run; of it, say {' or '.join(map(repr, _OF_PLAIN))}."
        )
    if run != "plain" and told == NO_USE:
        raise Wrong(f"{run}: {NO_USE!r} is said of the plain run; {run} is compared with that, whatever its use.")
    return told
