"""Lesson 07's exercises: write the findings of a harness, repair an evaluation, predict the check."""

from __future__ import annotations

import functools
import math

import torch

from recompute_lab.instruments.agreement import Agreement
from recompute_lab.instruments.determinism import switched
from recompute_lab.instruments.evaluation import run_twice
from recompute_lab.instruments.finding import Finding
from recompute_lab.instruments.nondeterminism import StagedRace
from recompute_lab.instruments.streams import kept, process_streams, seed_everything
from recompute_lab.lessons.evaluations import NEAR, checked
from recompute_lab.lessons.exercise import Exercises, Hints, Wrong
from recompute_lab.specimens.digit_scorer import held_out, scorer
from recompute_lab.specimens.threads import threads
from recompute_lab.specimens.unknown_evaluations import UNKNOWN, Harness, Queued

check = Exercises()
hint = Hints(check)


# --- Predict the check

AGREES, DISAGREES = "agrees", "disagrees"


@functools.cache
def predicted() -> dict[str, Agreement]:
    """The check of each of the five, its race staged."""
    return {letter: checked(make(StagedRace({1: NEAR, 2: -NEAR}))) for letter, make in UNKNOWN.items()}


_WHY = {
    "A": "its sum races: last bits of the loss move, until the switch fixes the order",
    "B": "its confidences race past one of them, and a digit more or less is counted; the switch stops the race, not "
    "the branch",
    "C": "the scale that one run finds is where the next one starts",
    "D": "its rows are drawn from torch's default stream, which is the same at the start of each run; the log is only "
    "written",
    "E": "the set's order does not reach the result, and a maximum of equal numbers is that number",
}


@check.add(
    "The check puts torch's, NumPy's and Python's default streams back before each run, and nothing else. What does "
    "an evaluation find that an earlier run has left, and does it read it?",
    "`racing` moves last bits from run to run without the switch, and none with it. In which of the five is it used at "
    "all, and what hangs on these bits there?",
    "A set is no fault by itself: does the result depend on the order in which it is gone through? And what is left "
    "behind is no fault either, if nothing is changed by reading it.",
)
def predict(answer: dict) -> str:
    """`answer[letter] = (without the switch, with it)`, each "agrees" or "disagrees"."""
    if not isinstance(answer, dict) or set(answer) != set(UNKNOWN):
        raise Wrong(f"answer for {', '.join(UNKNOWN)}.")
    for letter, given in answer.items():
        if not isinstance(given, tuple | list) or len(given) != 2:
            raise Wrong(f"{letter}: give a pair, (without the switch, with it).")
        for said in given:
            if said not in (AGREES, DISAGREES):
                raise Wrong(f"{letter}: {said!r} is neither {AGREES!r} nor {DISAGREES!r}.")
    told = []
    for letter, found in predicted().items():
        for way, said, agreement in zip(
            ("without", "with"), answer[letter], (found.without_switch, found), strict=True
        ):
            measured = AGREES if agreement.agrees else DISAGREES
            if said != measured:
                told.append(f"{letter}, {way} the switch: you said {said!r}, it {measured}: {_WHY[letter]}.")
    if told:
        raise Wrong(" ".join(told))
    return (
        "A and B differ only without the switch: with it neither is accused, though B's number hangs on a rounding, "
        "and A's does not. C is what the check is for."
    )


# --- Write the findings

# By what words a confound is known, and what it is.
_CONFOUNDS = {
    "accuracy, blotted": ("ink generator blot random noise seed draw".split(), "what the blots are drawn by"),
    "loss": ("kept cache half float16 stored saved".split(), "what a run leaves, and the next one reads"),
}


@functools.cache
def _series(runs: int) -> list[dict]:
    """What one harness gives in so many runs under the switch."""
    harness, model, data = Harness(), scorer(), held_out()
    with threads(1), switched(True):
        return [harness(model, *data) for _ in range(runs)]


@check.add(
    "found = run_twice(Harness(), model, *data): which metrics move, and which reason moves which? Finding.of(found, "
    "metric, steps=[...], after=...) fills in what is known.",
    "What the number becomes once the confound is gone has to be computed: an evaluation that finds no trace of an "
    "earlier one. How do you get a harness without a past?",
    "A harness that was made a moment ago: Harness()(model, *data), for every evaluation anew. A metric that agrees "
    "has a finding as well: Finding.of makes it, or Finding.nothing.",
)
def findings(answer: list[Finding]) -> str:
    """A `Finding` for each of the harness's metrics. What they say in numbers is computed again."""
    metrics = list(_series(2)[0])
    if not isinstance(answer, list | tuple) or not all(isinstance(each, Finding) for each in answer):
        raise Wrong("give a list of Findings, one for each metric of the harness.")
    named = [finding.metric for finding in answer]
    if unknown := [name for name in named if name not in metrics]:
        raise Wrong(f"{unknown[0]!r} is no metric of the harness: it has {', '.join(map(repr, metrics))}.")
    if missing := [name for name in metrics if name not in named]:
        raise Wrong(f"{missing[0]!r} has no finding. That nothing was found is written down, too.")
    if len(named) != len(metrics):
        raise Wrong("give one finding for each metric.")
    for finding in sorted(answer, key=lambda each: metrics.index(each.metric)):
        _must_be_right(finding)
    moved = [finding for finding in answer if finding.found]
    if len({" ".join(finding.confound.casefold().split()) for finding in moved}) < len(moved):
        raise Wrong("you give one confound for two metrics: what is it that moves each of them, and not the other?")
    return (
        "two confounds, each with its number, and one metric in which nothing was found. The table's three numbers can "
        "be had again."
    )


def _must_be_right(finding: Finding) -> None:
    name = finding.metric
    if len(finding.before) > 20:
        raise Wrong(f"{name}: twenty values are enough.")
    expected = [run[name] for run in _series(max(2, len(finding.before)))]
    moves = len(set(expected)) > 1
    if moves != finding.found:
        told = f"it gives {expected[0]:.6g}, then {expected[1]:.6g}" if moves else "every run gives the same"
        raise Wrong(f"{name}: you have written that {'nothing' if moves else 'something'} was found, and {told}.")
    if not all(map(_near, finding.before, expected)):
        raise Wrong(
            f"{name}: its runs gave {', '.join(f'{value:.6g}' for value in expected)}, one after the other, with one "
            f"harness; you have {', '.join(map(_shown, finding.before))}."
        )
    if not moves:
        return
    clean = expected[0]  # the first run of a harness that was just made
    if not all(_near(value, clean) for value in finding.after):
        average = sum(expected) / len(expected)
        mean = " An average still has the confound in it." if _near(finding.after[0], average) else ""
        raise Wrong(
            f"{name}: with the confound gone it is {clean:.6g}, as a harness without a past gives it; you have "
            f"{_shown(finding.after[0])}.{mean}"
        )
    words, meaning = _CONFOUNDS[name]
    if not _names(finding, words):
        swapped = any(_names(finding, others) for others, _ in _CONFOUNDS.values())
        told = " What you name moves another metric." if swapped else ""
        raise Wrong(f"{name}: the confound should name {meaning}, as the code does.{told}")
    if len(finding.steps) < 2:
        raise Wrong(f"{name}: with one step nobody sees it again: which code, which data, what is done twice?")


def _names(finding: Finding, words: list[str]) -> bool:
    return any(word in finding.confound.casefold() for word in words)


def _near(value, expected: float) -> bool:
    try:
        return math.isclose(float(value), expected, rel_tol=2e-6)
    except (TypeError, ValueError, RuntimeError):
        return False


def _shown(value) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


# --- Repair an evaluation

# Digits of one batch, and of few classes: neither an order nor a past has anything to say, and the running mean has.
_CLEAN = ((3, 5), (1, 8), (0,))


@functools.cache
def _clean() -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    """Data on which the original, just made, has one answer; and what they are, in words."""
    patches, labels = held_out()
    chosen = {}
    for digits in _CLEAN:
        rows = torch.isin(labels, torch.tensor(digits)).nonzero().flatten()[:100]
        told = f"{len(rows)} digits that are {' or '.join(map(str, digits))}, one batch"
        chosen[told] = patches[rows], labels[rows]
    chosen["150 copies of one digit, a batch and a half"] = patches[:1].repeat(150, 1, 1), labels[:1].repeat(150)
    return chosen


@check.add(
    "Two things differ from run to run. One is left by the run before; the other comes anew in each run, and nobody "
    "can put it back. run_twice(Queued(), model, *data) names both, one after the other.",
    "The running mean belongs to one evaluation: begin each with zeros. The names in the set are only there to be "
    "taken one after the other: any fixed order will do, the digits' own for one.",
    "Keep the rest: a hundred at a time, the mean updated before it is taken away, all digits counted.",
)
def repair(answer: type) -> str:
    """`answer()` is an evaluation as `Queued()` is. It must agree with itself, and with the original on clean data."""
    if not isinstance(answer, type):
        raise Wrong("give the class, not an object of it: check.repair(Orderly).")
    model = scorer()
    with threads(1):
        found = run_twice(answer(), model, *held_out(), times=3)
    expected = Queued()(model, *next(iter(_clean().values())))
    if set(found.metrics) != set(expected):
        raise Wrong(f"return what the original does, {', '.join(expected)}; yours has {', '.join(found.metrics)}.")
    if not found.agrees:
        reason = f" ({found.reasons[0].name})" if found.reasons else ""
        raise Wrong(f"it still disagrees with itself: {found.differing[0]}{reason}.")
    if not found.without_switch.agrees:
        raise Wrong("with the switch it agrees, without it does not: the number should not hang on a switch.")
    with kept(process_streams()), threads(1), switched(True):
        seed_everything(1)  # run_twice puts the streams back before each run; the next evaluation does not
        drawn = answer()(model, *held_out())
    for name, metric in found.metrics.items():
        if not math.isclose(float(drawn[name]), float(metric.first), rel_tol=1e-6):
            raise Wrong(
                f"with other seeds its {name} is another: an order that is drawn is no fixed order. Torch's, NumPy's "
                "and Python's streams are put back for the check, and by nobody else."
            )
    repaired = answer()  # one object for all: a past must not show
    for told, data in _clean().items():
        with threads(1), switched(True):
            wanted, given = Queued()(model, *data), repaired(model, *data)
        for name, value in wanted.items():
            if not math.isclose(float(given[name]), value, rel_tol=1e-5):
                raise Wrong(f"on {told}, the original gives {name} {value:.4g}, yours {float(given[name]):.4g}.")
    whole = found.metrics["accuracy"].first * len(held_out()[1])
    if not math.isclose(whole, round(whole), abs_tol=1e-3):
        raise Wrong("the accuracy is not that of all 899 digits: some were left out.")
    return "three runs agree in every bit, and where neither order nor past counts it gives what the original gives."
