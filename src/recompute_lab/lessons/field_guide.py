"""Lesson 08: what comes of each fault and its repair, the chart from symptom to root cause, and the exercises."""

from __future__ import annotations

import functools
import os
import re
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from torch import nn
from torch.utils.checkpoint import checkpoint

from recompute_lab.instruments.gradients import ROUNDING, Run
from recompute_lab.instruments.interrupts import stacks_kept, uninterrupted
from recompute_lab.instruments.root_cause import CUT_OFF, KERNEL, PROTOCOL, Finding, root_cause, treat
from recompute_lab.instruments.steps import IMPLEMENTATIONS, Outcome, outcome, outcomes, plainly, stepped
from recompute_lab.instruments.witness import Report, Witness
from recompute_lab.lessons.exercise import Exercises, Hints, Wrong
from recompute_lab.specimens.field_guide import EARLIER, GUIDE, ROOT_CAUSES, Fault, fault
from recompute_lab.specimens.unknown_segments import UNKNOWN, Scaled, Steered
from recompute_lab.views.field_guide import Row, Step

check = Exercises()
hint = Hints(check)

EVERYTHING = (*GUIDE, *EARLIER)
VERDICTS = ("replayable", "side effect", "silent", "loud")


@contextmanager
def debugging() -> Iterator[None]:
    """Around a checkpoint with `debug=True`: an interrupt waits, and torch looks up the names of C++ by itself.

    Else it asks addr2line, a child process, which Ctrl-C ends as well: then torch's own traces fail until a restart.
    """
    variable = "TORCH_DISABLE_ADDR2LINE"
    before = os.environ.get(variable)
    with uninterrupted(), stacks_kept():
        os.environ[variable] = "1"
        try:
            yield
        finally:
            os.environ.pop(variable)
            if before is not None:
                os.environ[variable] = before


# --- What comes of each fault


@functools.cache
def plain_run(name: str) -> Run:
    """The right gradients: the repaired model's, without checkpointing.

    One of the repairs draws other noise, from another stream; there it is the faulty model's own plain run.
    """
    one = fault(name)
    return stepped(one.faulty if one.cause == 5 else one.repaired, plainly)


@functools.cache
def found(name: str) -> dict[str, Outcome]:
    """The faulty step under both implementations."""
    return outcomes(fault(name).faulty, plain_run(name))


def refused(name: str) -> str:
    """What the faulty step's own plain run raises; "" where it raises nothing."""
    return outcome(fault(name).faulty, plainly, plain_run(name)).error


def mended(name: str) -> bool:
    """Does the repaired step give the plain run's gradients, bit for bit, under both implementations?"""
    one = fault(name)
    plain = stepped(one.repaired, plainly)
    return all(o.divergence.equal for o in outcomes(one.repaired, plain).values())


def watched(make: Callable) -> list[Report]:
    """The witness's reports on a step, which it rides along in; none where it has seen no recomputation."""
    witness = Witness()
    try:
        stepped(make, partial(checkpoint, use_reentrant=False, context_fn=witness.context_fn))
    except Exception:
        pass  # its report is there all the same
    return witness.reports


def report(name: str) -> Report | None:
    """The worst report on a faulty step; None where there is none."""
    return worst_of(watched(fault(name).faulty))


def worst_of(reports: list[Report]) -> Report | None:
    """The one that says most: the worst verdict, then the most causes proven."""
    return max(reports, key=lambda r: (VERDICTS.index(r.verdict), sum(c.proven for c in r.causes)), default=None)


def sheet(name: str) -> str:
    """One fault's page: symptom, the witness's report, repair."""
    lines = []
    if told := refused(name):
        lines.append(f"plain run: raises {shortened(told)}")
    for implementation, result in found(name).items():
        lines.append(f"{implementation}: {symptom(result)}")
        if missing := result.divergence.missing:
            lines += textwrap.wrap(
                f"no gradient: {', '.join(missing)}", 96, initial_indent="  ", subsequent_indent="    "
            )
    if made := report(name):
        # By how much the output is off may be a last bit; an error's text may be another in another version of torch.
        lines += [line for line in str(made).splitlines() if not re.search("output is off by|effect: Assert", line)]
    else:
        lines.append("the witness has no report: the error came before the recomputation")
    lines.append(f"repaired ({fault(name).repair}): equal to the plain run under both: {mended(name)}")
    return "\n".join(lines)


def symptom(result: Outcome) -> str:
    """What one sees of it: the error, the warning, or what a comparison with the plain run shows."""
    if result.error:
        return f"raises {_worded(result.error)}"
    seen = result.damage and f"no error, {result.damage}"
    if result.verdict == "side effect":
        seen = "gradients right, but something happens twice"
    return (seen or "right") + (f"; it warns: {shortened(result.warned[0], 44)}" if result.warned else "")


def _worded(error: str) -> str:
    """An error as a page has it: of an assertion in torch its kind alone, since not all versions give it a text."""
    return error.partition(":")[0] if re.match(_STOP_SWALLOWED, error) else shortened(error)


def shortened(text: str, most: int = 72) -> str:
    """At most so many characters, cut at a word."""
    return textwrap.shorten(text, most, placeholder=" ...")


_CELL = {"replayable": "right", "side effect": "right", "silent": "silent", "loud": "loud"}


def rows() -> list[Row]:
    """All faults for the figure, with what is measured of them."""
    return [Row(one.name, one.cause, tuple(_cell(result) for result in found(one.name).values())) for one in EVERYTHING]


def _cell(result: Outcome) -> tuple[str, str]:
    kind = result.error.partition(":")[0]
    words = f"raises {kind}" if kind else result.damage and f"silent: {result.damage.removeprefix('gradients ')}"
    return _CELL[result.verdict], words or "right"


# --- From a symptom to its root cause


STEPS: tuple[Step, ...] = (
    Step("reentrant only", "Is the loss, too, another than the plain run's?", 7, "one code path, gradients on or off"),
    Step("reentrant only", "", 1, "bare tensors in and out; x.requires_grad_()"),
    Step("non-reentrant only", "Right with one kernel chosen for both passes?", 7, "choose the kernel in the segment"),
    Step("non-reentrant only", "", 8, "one unpack; narrow except; save_for_backward"),
    Step("both", "Right if each pass has a copy of the arguments?", 4, "read arguments, do not write to them"),
    Step("both", "Right if all random streams are rewound?", 5, "draw from torch's default generator"),
    Step("both", "Right if the forward's weights are put back?", 6, "backward before anybody writes to them"),
    Step("both", "Right if all the caller has changed is put back?", 3, "make it an argument"),
    Step("both", "Right if what the forward wrote is undone?", 2, "write outside, or rewind"),
    Step("both", "", 7, "one decision for both passes (lessons 01, 02)"),
)

# What one sees, by who is wrong.
SEEN: dict[str, str] = {
    "reentrant only": "no error; a warning at most; gradients None or off",
    "non-reentrant only": "already unpacked once;\nan AssertionError; different metadata; or no error",
    "both": "different number of tensors, or different metadata (non-reentrant);\nan error of the forward's own, "
    "raised in backward;\nin-place operation;\nor no error, and gradients None or off",
}

# torch's own, in the versions that say something and in those that do not (`torch_version.swallowed_stop_says`).
_STOP_SWALLOWED = r"AssertionError(?: |$|: .*early_stop is set)"

# What is seen, as a pattern in `seen`, and the root causes that it leaves.
SYMPTOMS: tuple[tuple[str, str, tuple[int, ...]], ...] = (
    ("different number of tensors", "an error: a different number of tensors was saved", (2, 3, 4, 5, 6, 7)),
    ("different metadata", "an error: recomputed values have different metadata", (2, 3, 4, 5, 6, 7)),
    ("already unpacked once", "an error: unpack ... was already unpacked once", (8,)),
    (_STOP_SWALLOWED, "an AssertionError of torch's: early_stop is set, or no text", (8,)),
    ("inplace operation|in-place operation", "an error: modified by an inplace operation, in-place", (4, 6)),
    ("None of the inputs have requires_grad", "a warning: none of the inputs have requires_grad", (1,)),
    (r"raises \w+", "an error of the forward's own, raised in backward", (3, 4, 6)),
    ("missing", "no error; a gradient is None", (1, 3, 4, 6)),
    ("off by", "no error; gradients are off", (1, 2, 3, 4, 5, 6, 7, 8)),
)


def symptoms_of(results: dict[str, Outcome]) -> list[tuple[str, tuple[int, ...]]]:
    """The entries of SYMPTOMS that fit what both implementations show, each once."""
    entries = []
    for result in results.values():
        seen = symptom(result)
        entry = next((e for e in SYMPTOMS if re.search(e[0], " ".join([seen, result.error, *result.warned]))), None)
        if entry and entry[1:] not in entries:
            entries.append(entry[1:])
    return entries


def chart_in_words() -> str:
    """The chart, a line for each of its steps."""
    lines, last = [], ""
    for step in STEPS:
        if step.who != last:
            lines.append(f"wrong under {step.who}:")
            last = step.who
        asked = step.question or "otherwise"
        lines.append(f"  {asked:<48} {step.cause}: {step.repair}")
    return "\n".join(lines)


def charted(one: Fault) -> Finding:
    """The root cause that the chart's questions lead to, each answered by an experiment."""
    return root_cause(one.faulty, plain_run(one.name))


# --- Exercise 1: six unknown segments


_SHORT = {"replayable": "right", "side effect": "right", "silent": "silent", "loud": "loud"}


@functools.cache
def unknown_finding(letter: str) -> Finding:
    return root_cause(UNKNOWN[letter])


@functools.cache
def told_of(letter: str) -> Report | None:
    """What the witness says of an unknown step, riding along."""
    return worst_of(watched(UNKNOWN[letter]))


def seen_by_the_witness(letter: str) -> bool:
    """Are its verdicts those that were measured?"""
    told, measured = told_of(letter), unknown_finding(letter).outcomes
    pairs = (("reentrant", told.reentrant), ("non-reentrant", told.non_reentrant)) if told else ()
    return bool(pairs) and all(_SHORT[said] == _SHORT[measured[name].verdict] for name, said in pairs)


@check.add(
    "Verdicts first, by thought: what does the recomputation see otherwise than the forward did? Does that change how "
    "many tensors are saved, or of which shape? Then non-reentrant is loud.",
    "One implementation alone is wrong: 1, 7 or 8. Both: ask for each name in the forward who else writes to it, and "
    "when: the caller (3), the forward itself (2), and is it an argument (4) or a weight (6)?",
    "A name is a word of the source: an argument, an attribute, a class, a function, or what Python calls the thing: "
    "hook, parameter, exception.",
)
def diagnose(answer: dict) -> str:
    """`answer[letter] = (root cause, name, reentrant, non-reentrant)`; all of it is measured."""
    if not isinstance(answer, dict) or set(answer) != set(UNKNOWN):
        raise Wrong(f"answer for the segments {', '.join(UNKNOWN)}.")
    for letter, given in answer.items():
        if not isinstance(given, tuple | list) or len(given) != 4:
            raise Wrong(f"{letter}: give four things: (root cause, name, reentrant, non-reentrant).")
        number, name, *verdicts = given
        verdicts = [said.casefold() if isinstance(said, str) else said for said in verdicts]
        if number not in ROOT_CAUSES or isinstance(number, bool):
            raise Wrong(f"{letter}: a root cause is a number from 1 to 8; got {number!r}.")
        measured = unknown_finding(letter)
        for said, (implementation, result) in zip(verdicts, measured.outcomes.items(), strict=True):
            if said not in _SHORT.values():
                raise Wrong(f"{letter}: {said!r} is none of 'right', 'silent', 'loud'.")
            if said != _SHORT[result.verdict]:
                raise Wrong(f"{letter}, {implementation}: you said {said!r}; run, it is: {_closed(symptom(result))}")
        if number != measured.number:
            raise Wrong(
                f"{letter}: the verdicts are right, the root cause is not {number}. {_not_that(letter, number)}"
            )
        words = _tokens(name) if isinstance(name, str) else set()
        if len(words) > _MOST_WORDS:
            raise Wrong(
                f"{letter}: verdicts and root cause are right; as the name give one thing, not {len(words)} words."
            )
        if not words & _names_of(letter):
            raise Wrong(
                f"{letter}: verdicts and root cause are right, but {name!r} is not what differs, or it "
                "only follows from what does. What do the two passes find otherwise, before anything has come of it?"
            )
    return (
        "all six. Each verdict was held against the plain run, each number against a run in which that cause, and no "
        "other, was treated."
    )


def _closed(sentence: str) -> str:
    """With a full stop, unless it was cut and ends with three."""
    return sentence if sentence.endswith(".") else sentence + "."


def _not_that(letter: str, number: int) -> str:
    """Why this root cause is not the one, with what is measured."""
    measured, make = unknown_finding(letter), UNKNOWN[letter]
    only = measured.wrong[0] if len(measured.wrong) == 1 else ""
    if only == "reentrant":
        if number == KERNEL:
            return "The loss is the plain run's: reentrant's forward computes the same values."
        if number == CUT_OFF:
            return "The loss itself is another than the plain run's: something computes other values, not fewer."
        return "Only reentrant is wrong. What is special about its forward?"
    if only == "non-reentrant" and number not in (KERNEL, PROTOCOL):
        return "Only non-reentrant is wrong: reentrant runs the same code twice, and finds nothing changed."
    if not only and number in (CUT_OFF, PROTOCOL):
        word = "non-reentrant" if number == CUT_OFF else "reentrant"
        return f"That would leave {word} right, and it is not."
    healed, _ = treat(make, number, measured.wrong)
    if healed:
        return "That treatment helps, but one that does less helps, too."
    return f"Treated for {ROOT_CAUSES[number]!r}, and for nothing else, it is as wrong as before."


def _names_of(letter: str) -> set[str]:
    """The words for what differs: what the treatment put back; of a broken agreement, what the witness names."""
    measured, names = unknown_finding(letter), set()
    for name in measured.names:
        names |= _tokens(name)
    if measured.number == PROTOCOL and (told := told_of(letter)):
        names |= _tokens(told.causes[0].name)
    return names


_MOST_WORDS = 8  # a name with its path; more is a list of guesses
_WORDS = {
    "weight": "parameter",
    "weights": "parameter",
    "bias": "parameter",
    "iterator": "generator",
    "iter": "generator",
}
_EMPTY = {"self", "the", "of", "a", "an", "in", "forward", "args", "is", "broad", "by", "torch", ""}


def _tokens(name: str) -> set[str]:
    """Its words in small letters, singular: {"hook"} of "up._forward_hooks", {"except"} of "Exception"."""
    parts = re.findall(r"[a-z]+", re.sub(r"([a-z])([A-Z])", r"\1 \2", name).lower())
    return {_WORDS.get(p, p).removesuffix("s").removesuffix("ion") for p in parts} - _EMPTY


# --- Exercises 2 and 3: two of them repaired


@check.add(
    "What does the recomputation find, and what should it? The hook is gone when backward runs.",
    "Either the hook is there until backward is over, or putting it there is part of what is run twice.",
    "def steered(x), which enters `with steering(self.block.up, self.gain)` and returns self.block(x). Run that.",
)
def repair_steered(answer: type) -> str:
    """`answer` is a subclass of `Steered` with a step of its own."""
    _must_be_a(answer, Steered)
    _must_leave_no_hook(answer, plainly)
    _must_be_repaired(answer, Steered, lambda model: [model.block.up, model.block.down])
    _must_leave_no_hook(answer, IMPLEMENTATIONS["non-reentrant"])
    return "both passes are steered, nobody else is, and the gradients are the plain run's, bit for bit."


def _must_leave_no_hook(answer: type, run: Callable) -> None:
    model = answer()
    before = len(model.block.up._forward_hooks)
    model.step(run)
    if len(model.block.up._forward_hooks) != before:
        raise Wrong("after the step the hook is still there: whoever uses the block next is steered, too.")


@check.add(
    "An iterator can be gone through once. What can be gone through twice?",
    "A list of the scales; and an iterator of it, which each pass makes for itself.",
    "run(lambda x: self.deep(x, iter(scales)), self.stem(self.rows))",
)
def repair_scaled(answer: type) -> str:
    """`answer` is a subclass of `Scaled` with a step of its own."""
    _must_be_repaired(answer, Scaled, lambda model: list(model.deep.layers))
    return "each pass goes through the scales from their beginning, and the gradients are the plain run's, bit for bit."


def _must_be_a(answer: type, kind: type) -> None:
    if not isinstance(answer, type) or not issubclass(answer, kind):
        raise Wrong(f"give a class: class Repaired({kind.__name__}), with a step of its own.")


def _must_be_repaired(answer: type, kind: type, inside: Callable[[nn.Module], list[nn.Module]]) -> None:
    """Raises `Wrong` unless the step is the original's, checkpointed, and right under both implementations."""
    _must_be_a(answer, kind)
    plain = stepped(kind, plainly)
    result = outcome(answer, plainly, plain)
    if result.verdict != "replayable":
        raise Wrong(f"without checkpointing your step is not the original's: {symptom(result)}.")
    if result.loss_off is None:
        raise Wrong(
            "the gradients are right, but your step does not return its loss: end it with return loss.detach()."
        )
    if result.loss_off > ROUNDING:
        raise Wrong("the gradients are right, but what your step returns is not the original's loss: loss.detach().")
    for implementation, run in IMPLEMENTATIONS.items():
        result = outcome(answer, run, plain)
        if result.verdict != "replayable":
            raise Wrong(f"{implementation}: {symptom(result)}.")
        runs = _Runs(answer, inside, run)
        runs.make().step(runs)
        if min(runs.inside) < 2:
            raise Wrong(
                "the layers, or some of them, no longer run in a checkpointed segment: that saves no memory. Give them "
                "to run()."
            )


class _Runs:
    """A `run` that counts how often each layer ran within what it was given: twice, where it is checkpointed."""

    def __init__(self, answer: type, inside: Callable[[nn.Module], list[nn.Module]], run: Callable):
        self._answer, self._layers, self._run = answer, inside, run
        self._depth, self.inside = 0, []

    def make(self) -> nn.Module:
        model = self._answer()
        layers = self._layers(model)
        self.inside = [0] * len(layers)
        for number, layer in enumerate(layers):
            layer.register_forward_pre_hook(partial(self._count, number))
        return model

    def _count(self, number: int, module: nn.Module, args: tuple) -> None:
        self.inside[number] += self._depth > 0

    def __call__(self, segment: Callable, *args):
        def counted(*args):
            self._depth += 1
            try:
                return segment(*args)
            finally:
                self._depth -= 1

        return self._run(counted, *args)
