"""What happens to a step, in one vocabulary: measured, under the plain run and both implementations."""

from __future__ import annotations

import re
import textwrap

from recompute_lab.instruments.checkpointing import Mismatch
from recompute_lab.instruments.gradients import Run
from recompute_lab.instruments.steps import IMPLEMENTATIONS, Outcome, outcome, plainly, stepped
from recompute_lab.lessons.drills.drill import Drill, Make
from recompute_lab.lessons.exercise import Wrong

RIGHT, NO_USE, SIDE_EFFECT = "right", "no use", "side effect"
OFF, MISSING = "silent: off", "silent: missing"
COUNT, METADATA, OTHER = "loud: count", "loud: metadata", "loud: other"

# Each word, and what is measured where it is said.
WORDS: dict[str, str] = {
    RIGHT: "no error; gradients and state are the plain run's",
    NO_USE: "no error, but the step does not do what it is for (of the plain run only)",
    SIDE_EFFECT: "no error, gradients right, but the step leaves another state than the plain run",
    OFF: "no error; gradients are there, and wrong",
    MISSING: "no error; a parameter has no gradient that has one in the plain run",
    COUNT: "an error: a different number of tensors was saved",
    METADATA: "an error: a recomputed tensor has another shape or dtype",
    OTHER: "any other error, in the forward or in backward",
}
RUNS = ("plain", *IMPLEMENTATIONS)


def measured(drill: Drill, number: int = 0) -> dict[str, tuple[str, str]]:
    """For the plain run and both implementations the word and what was seen. `number` counts the ways to stage it."""
    make = drill.staged[number][1](drill.faulty)
    plain = stepped(make, plainly)
    try:
        drill.must_do(drill.faulty)
        seen = (RIGHT, "it runs, and does what it is for")
    except Wrong as wrong:
        seen = (NO_USE, f"it runs, but {wrong}")
    return {"plain": seen, **others(make, plain)}


def others(make: Make, plain: Run) -> dict[str, tuple[str, str]]:
    """Word and sight under each implementation, against that plain run."""
    results = {name: outcome(make, run, plain) for name, run in IMPLEMENTATIONS.items()}
    return {name: (word_for(result), sight_of(result)) for name, result in results.items()}


def word_for(result: Outcome) -> str:
    """One of WORDS."""
    found = result.divergence
    if found.raised is not None:
        return {"count": COUNT, "metadata": METADATA}.get(Mismatch.of(found.raised).kind, OTHER)
    if result.verdict == "silent":
        return MISSING if found.missing else OFF
    return SIDE_EFFECT if found.changed else RIGHT


def sight_of(result: Outcome) -> str:
    """What one sees, in a few words. A gradient is off by the norm of the difference, in norms of the right one."""
    found = result.divergence
    if found.raised is not None:
        return f"it raises {error_of(found.raised)}"
    warned = "; it warns" if result.warned else ""
    if found.missing:
        return f"no error, and no gradient for {', '.join(found.missing[:3])}{warned}"
    if found.unexpected:
        return f"no error, and a gradient for {found.unexpected[0]}, which has none in the plain run{warned}"
    if result.verdict == "silent":
        worst = max(found.rows, key=lambda row: row.error)
        return f"no error, and the gradient of {worst.name} is off by {worst.error:.1g}{warned}"
    if found.changed:
        return f"gradients right, but state is not the plain run's: {', '.join(found.changed[:3])}{warned}"
    return f"gradients and state are the plain run's{warned}"


def row(run: str, word: str, sight: str) -> str:
    """What became of a run as a row of a table: its name, its word, and what was seen, in lines of 96 at most."""
    return textwrap.fill(f"{run:<14} {word:<16} {closed(sight)}", 96, subsequent_indent=" " * 32)


def closed(sentence: str) -> str:
    """With a full stop, unless it was cut and ends with three."""
    return sentence if sentence.endswith(".") else sentence.rstrip(": ") + "."


def error_of(error: BaseException) -> str:
    """Its kind and first line, in a few words: those that all versions of torch have."""
    text = re.sub(r"(One of the|The) differentiated Tensors?( at index \d+)?", "a differentiated Tensor", str(error))
    told = text.removeprefix("torch.utils.checkpoint: ").strip().splitlines()
    return textwrap.shorten(": ".join([type(error).__name__, *told[:1]]), 110, placeholder=" ...")
