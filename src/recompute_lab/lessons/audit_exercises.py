"""Lesson 06's exercises: triage twelve hits; write what is walked past; repair three sites of the small project."""

from __future__ import annotations

import inspect
import linecache
import tempfile
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import count
from pathlib import Path

import torch

from recompute_lab.instruments.audit import Audit, audit
from recompute_lab.instruments.checkpointing import Mismatch, passes
from recompute_lab.instruments.grep import matches
from recompute_lab.instruments.witness.trace import Trace, Tracer
from recompute_lab.lessons.audit_source import branches
from recompute_lab.lessons.exercise import Exercises, Hints, Wrong
from recompute_lab.lessons.repairs import must_equal
from recompute_lab.specimens import twelve_hits
from recompute_lab.specimens.small_project import blocks, mixing

check = Exercises()
hint = Hints(check)


# --- Exercise 1: triage

LETTERS = "ABCDEFGHIJKL"
WORDS = (
    ("inside", "not seen"),
    ("armed", "dormant"),
    ("graph", "raise", "state", "telemetry", "nothing"),
    ("repair", "move", "keep"),
)


@cache
def answers() -> dict[str, tuple[str, str, str, str]]:
    """What the audit says of each line, and a run of it, with the options as they are by default."""
    text = Path(twelve_hits.__file__).read_text(encoding="utf-8").split("\n")
    lines = {letter: next(n for n, line in enumerate(text, 1) if line.endswith(f"# {letter}")) for letter in LETTERS}
    found = {one.line: one for one in branches(audit(twelve_hits.__file__))}
    read, read_inside = _lines_read()
    told = {}
    for letter, line in lines.items():
        one = found.get(line)
        if one is None:
            told[letter] = ("not seen", "armed", "nothing", "keep")
            continue
        inside = one.checkpoint != "not seen" or one.read_line in read_inside
        dormant = one.guard is not None and one.read_line not in read
        told[letter] = (
            "inside" if inside else "not seen",
            "dormant" if dormant else "armed",
            one.decides,
            to_do(inside, one.decides),
        )
    return told


def to_do(inside: bool, decides: str) -> str:
    """The lesson's rule: outside, and where nothing hangs on it, it stays; a guard that is off changes nothing."""
    if not inside or decides in ("nothing", "telemetry"):
        return "keep"
    return "repair" if decides in ("graph", "shape") else "move"


def _lines_read() -> tuple[set[int], set[int]]:
    """The lines of the twelve hits' file in which a run read a value: anywhere, and inside a checkpoint."""
    both: list[tuple[Trace, Trace]] = []

    def context_fn():
        both.append((Trace(), Trace()))
        return tuple(map(Tracer, both[-1]))

    elsewhere = Trace()
    with Tracer(elsewhere), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        net = twelve_hits.Net(context_fn=context_fn)
        for scale in (0.3, 1.0, 3.0):
            x = (scale * _normal()).requires_grad_()
            net(x, torch.arange(len(x)) % 3).sum().backward()
    inside = {_line(read) for pair in both for trace in pair for read in trace.reads}
    return inside | {_line(read) for read in elsewhere.reads}, inside


def _line(read) -> int:
    return int(read.where.rpartition(":")[2])


def _normal() -> torch.Tensor:
    return torch.randn(8, 16, generator=torch.Generator().manual_seed(0))


_WHY_INSIDE = {
    "A": "the audit has not seen it, since the layer takes it out of a table; but a run finds it in a recomputation",
    "J": "it is given to a checkpoint itself",
    "K": "it comes after both checkpoints, in the function that calls them",
    "L": "nothing here calls it from a checkpoint",
}
_WHY_DECIDES = {
    "graph": "by it other operations run, so that other tensors are saved",
    "raise": "nothing hangs on it but whether an exception is raised",
    "state": "it decides what is kept in an attribute that is read again, and no operation",
    "telemetry": "it decides whether a line is logged, and no more",
    "nothing": "no tensor is read there: it is text, or NumPy",
}
_WHY_TO_DO = {
    "repair": "inside a checkpoint a value decides what is saved: run it always. Dormant is not fixed",
    "move": "no operation hangs on it, but it happens in both passes: it belongs outside, or into an operator",
    "keep": "no recomputation can go wrong by it",
}


@check.add(
    "Inside: forward, all that it calls, and whatever else is given to `checkpoint`. A function in a table is called "
    "as well: look at what the table's keys are.",
    "Armed or dormant: the condition before `and`, with Options() and float32. Two are behind such a condition; one of "
    "them is on by default.",
    "What it decides: read both arms. An operation: 'graph'. An attribute that is read again: 'state'. No tensor in "
    "the condition at all: 'nothing'.",
    "What to do: 'keep' where it is not inside, and for 'nothing' and 'telemetry'; 'repair' for 'graph', dormant or "
    "not; 'move' for 'raise' and 'state'.",
)
def triage(answer: Mapping[str, tuple[str, str, str, str]]) -> str:
    """Each letter's four words are held against the audit, completed by a run."""
    if not isinstance(answer, Mapping) or set(answer) != set(LETTERS):
        raise Wrong("keep the twelve letters, A to L.")
    told = []
    for letter, expected in answers().items():
        given = answer[letter]
        if not isinstance(given, tuple | list) or len(given) != 4:
            raise Wrong(f"{letter}: give four words, such as ('inside', 'armed', 'graph', 'repair').")
        for said, words in zip(given, WORDS, strict=True):
            if said not in words:
                raise Wrong(f"{letter}: {said!r} is none of {', '.join(map(repr, words))}.")
        inside, armed, decides, do = expected
        if given[2] != decides:
            told.append(f"{letter} does not decide {given[2]!r}: {_WHY_DECIDES[decides]}.")
        elif decides == "nothing":
            if given[3] != do:
                told.append(f"{letter}: {_WHY_DECIDES[decides]}. There is nothing to {given[3]}.")
        elif given[0] != inside:
            told.append(f"{letter} is {inside}: {_WHY_INSIDE.get(letter, 'the forward of the layer gets there')}.")
        elif given[1] != armed:
            why = "float32 never gets past the dtype" if letter == "G" else "nothing is off before it"
            told.append(f"{letter} is {armed}: {why}.")
        elif given[3] != do:
            told.append(f"{letter}: {do}, for {_WHY_TO_DO[do]}.")
    if told:
        more = f" And {len(told) - 2} more." if len(told) > 2 else ""
        raise Wrong(" ".join(told[:2]) + more)
    repairs = sum(do == "repair" for *_, do in answers().values())
    return f"{repairs} of twelve need a repair; one of them the audit could not place, and one is asleep."


# --- Exercise 2: what is walked past


@dataclass(frozen=True)
class Tried:
    """A learner's text: what the audit says of it, and what its runs did. `differs`: two inputs, in words."""

    audited: Audit
    differs: tuple[str, str]
    reads: int


INPUTS = {
    "zeros": lambda x: 0 * x,
    "small numbers": lambda x: 0.01 * x,
    "normal numbers": lambda x: x,
    "positive numbers": torch.Tensor.abs,
    "negative numbers": lambda x: -x.abs(),
    "large numbers": lambda x: 100 * x,
    "equal numbers": torch.ones_like,
}
_ABOVE = 3  # lines that stand above the learner's text
_number = count(1)


def tried(text: str) -> Tried:
    """Audit the text, and run its `segment(x)`, x [8, 16], for every kind of input. Raises `Wrong` where the grep finds
    it, and where no value decides what runs."""
    if not isinstance(text, str):
        raise Wrong("give the source as a text: three quotes, and in it def segment(x): ...")
    text = "import torch\n\n\n" + textwrap.dedent(text).strip("\n") + "\n"
    for line in text.split("\n"):
        if matches(line):
            raise Wrong(f"the grep finds it: {line.strip()}")
    logs = {}
    for name, make in INPUTS.items():
        segment = _made(text)  # anew, so that no input finds what the one before it left
        first, again = (_ran(segment, make(_normal()), seed) for seed in (0, 1))
        if first[0] != again[0]:
            raise Wrong(f"two runs with the same input ({name}) do not do the same: a draw decides, or what a run left")
        logs[name] = first
    one = next(iter(logs))
    other = next((name for name in logs if logs[name][0] != logs[one][0]), None)
    if other is None:
        raise Wrong(
            f"no value decides what runs: for {len(logs)} kinds of input ({', '.join(logs)}) the same operations run, "
            "in the same lines"
        )
    return Tried(_audited(text), (one, other), max(reads for _, reads in logs.values()))


def _made(text: str) -> Callable:
    name, names = f"<stdin of exercise 2, {next(_number)}>", {"__name__": "exercise"}
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    try:
        code = compile(text, name, "exec")
    except SyntaxError as error:
        where = f", in line {error.lineno - _ABOVE} of your text" if error.lineno else ""
        raise Wrong(f"Python cannot parse it{where}: {error.msg}") from None
    try:
        exec(code, names)
    except Exception as error:
        told = f"{type(error).__name__}: {error}"
        raise Wrong(f"Python cannot run it: {told}. Has it a def segment(x):, and all else that it needs?") from None
    if not callable(names.get("segment")):
        raise Wrong("the text has to define a function of the name segment: def segment(x): ...")
    return names["segment"]


def _ran(segment: Callable, x: torch.Tensor, seed: int) -> tuple[list, int]:
    """Its operators with their lines, or the exception that ended it; and how many values Python read."""
    trace = Trace()
    with torch.random.fork_rng(devices=[]), Tracer(trace):
        torch.manual_seed(seed)
        try:
            output = segment(x.requires_grad_())
        except Exception as error:
            trace.operators.append((type(error).__name__, None, None, None))
            output = x
    if not isinstance(output, torch.Tensor):
        raise Wrong(f"segment(x) has to return a tensor; it returned {type(output).__name__}")
    return [(name, line) for name, _, _, line in trace.operators], len(trace.reads)


def _audited(text: str) -> Audit:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "segment.py")
        path.write_text(text, encoding="utf-8")
        found = audit(path)
    if found.suppressed:
        raise Wrong("a comment that suppresses the finding is no form that is missed")
    if found.notes:
        raise Wrong(f"the audit could not read it: {found.notes[0].rpartition('/')[2]}")
    return found


@check.add(
    "The grep wants an `if`, one of seven methods with empty parentheses, and the colon right behind them. A "
    "comparison in between is enough.",
    "For example: if x.abs().max() > 1.0: x = x.tanh()",
)
def walked_past(text: str) -> str:
    """The grep misses it, a value decides, and the audit finds it."""
    made = tried(text)
    found = branches(made.audited)
    if not found:
        raise Wrong("the grep misses it, and a value decides; but the audit misses it too: keep it for the second one")
    if found[0].decides not in ("graph", "shape"):
        raise Wrong(f"the audit finds it, but no operation hangs on it: {found[0].message}")
    return f"the grep walks past, and the audit does not: {found[0].message}. {_differ(made)}" + (
        " It suspects, as nothing shows that it is a tensor." if found[0].suspected else ""
    )


@check.add(
    "What the audit cannot see is printed below every result. Which of it fits into one function?",
    "A dictionary whose values are different functions, and a key that is a text, made of what was read from a tensor.",
    'ARMS = {"True": torch.tanh, "False": torch.sin}, and: return ARMS[str((x.max() > 1.0).item())](x)',
)
def missed_by_both(text: str) -> str:
    """Neither finds it, and yet a run shows that a value decides."""
    made = tried(text)
    found = branches(made.audited)
    if found:
        raise Wrong(f"the audit finds it, in line {found[0].line - _ABOVE} of your text: {found[0].source}")
    reads = (
        f"Python read {made.reads} value{'s' * (made.reads > 1)}" if made.reads else "no value was read, only a size"
    )
    return f"neither search of the text finds it. {_differ(made)} In one run {reads}."


def _differ(made: Tried) -> str:
    return f"Other operations run for {made.differs[0]} than for {made.differs[1]}."


# --- Exercise 3: three repairs


def _bent_back(x, hot):
    block = blocks.Block.__new__(blocks.Block)
    torch.nn.Module.__init__(block)
    block.config = type("_", (), {"hot": hot})
    block.look(x)
    return hot * torch.tanh(x / hot) if block.hot else x * 1  # the identity, and no view of the argument


def _clamped(x):
    return blocks.clamped(x * 1)


def _inputs(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def _with(x: torch.Tensor, *values: float) -> torch.Tensor:
    x = x.clone()
    x[0, : len(values)] = torch.tensor(values)
    return x


def _half() -> torch.Tensor:
    return _inputs(4, 6).to(torch.float16)


def _parts() -> torch.Tensor:
    return _inputs(2, 12, 4)


def _quiet_part(value: float = 0.0) -> torch.Tensor:
    x = _parts()
    x[:, 4:8] = value
    return x


def _inputs_of(name: str) -> dict[str, tuple]:
    if name == "bent_back":
        x = _inputs(4, 6)
        return {
            "small activations": (x, 3.0),
            "one above": (_with(x, 5.0), 3.0),
            "one far below zero": (_with(x, -5.0), 3.0),
            "one exactly at the threshold": (_with(x, 3.0), 3.0),
            "zeros": (0 * x, 3.0),
            "one NaN": (_with(x, float("nan")), 3.0),
            "one NaN, one above": (_with(x, float("nan"), 5.0), 3.0),
        }
    if name == "clamped":
        return {
            "float16": (_half(),),
            "float16, one infinity": (_with(_half(), float("inf")),),
            "float16, 65000 and no infinity": (_with(_half(), 65000.0),),
            "float16, 65000 and an infinity": (_with(_half(), 65000.0, -float("inf")),),
            "float16, one NaN": (_with(_half(), float("nan")),),
            "float32, one infinity": (_with(_inputs(5, 6), float("inf")),),
        }
    return {
        "three parts with something in them": (_parts() + 2, 3),
        "one part of zeros": (_quiet_part() + 0.0, 3),
        "one part of NaN": (_quiet_part(float("nan")), 3),
        "fewer places than parts": (_inputs(2, 2, 4), 3),
        "fewer places than parts, one with small numbers": (_inputs(2, 2, 4) * torch.tensor([[1.0], [0.1]]), 3),
    }


_ORIGINALS = {"bent_back": _bent_back, "clamped": _clamped, "summary": mixing.summary}
_BOTH_SIDES = {
    "bent_back": ("small activations", "one above"),
    "clamped": ("float16", "float16, one infinity"),
    "summary": ("three parts with something in them", "one part of zeros"),
}


def _repaired(answer: Callable, name: str) -> str:
    inputs = _inputs_of(name)
    saved = must_equal(answer, _ORIGINALS[name], inputs)
    try:
        text = textwrap.dedent(inspect.getsource(answer))
    except (OSError, TypeError):
        raise Wrong("its source is needed for the audit: write the function in this cell, with def") from None
    found = branches(_audited("import torch\n\n\n" + text))
    if found:
        raise Wrong(f"the values are right, but the audit still reports: {found[0].source}. {found[0].message}")
    one, other = (inputs[key] for key in _BOTH_SIDES[name])
    for first, second in ((one, other), (other, one)):
        both = passes(_flipping(answer, first[0], second[0]), first[0].clone().requires_grad_(), *first[1:])
        if both.error:
            raise Wrong(f"where the passes are on the two sides of the threshold, it raises: {Mismatch.of(both.error)}")
    return (
        f"equal in every bit for {len(inputs)} kinds of input, outputs and gradients; the audit has nothing to "
        f"report; with the passes on the two sides of the threshold both save {saved}."
    )


def _flipping(segment: Callable, first: torch.Tensor, second: torch.Tensor) -> Callable:
    """The segment, given `first` in the forward and `second` in the recomputation."""
    calls = count(1)

    def run(x, *args):  # the same operations in both passes
        ours = torch.full_like(x, next(calls) == 1, dtype=torch.bool)
        return segment(torch.where(ours, x, second), *args)

    return run


@check.add(
    "It was: if any activation is above hot, all of x goes through hot * tanh(x / hot). One decision for all of x.",
    "torch.where takes a condition with one element, and two tensors: torch.where(x.abs().amax() > hot, ..., x)",
    "The arm that is not chosen has a gradient all the same: 0 times that of tanh, which is NaN at a NaN. Give tanh "
    "something safe: torch.where(hot_now, x, 0.0).",
)
def bent_back(answer: Callable) -> str:
    """`answer(x, hot)`, x of any shape, hot a float: blocks.py, the attribute `hot`."""
    return _repaired(answer, "bent_back")


@check.add(
    "A dtype is no tensor's value: that condition may stay. The other one must become a tensor.",
    "A clamp is the identity within its bounds; 65000 is out of them. So keep the decision: "
    "torch.where(torch.isinf(x).any(), clamped, x)",
)
def clamped(answer: Callable) -> str:
    """`answer(x)`, float16 or float32, any shape: blocks.py, the guard against overflow."""
    return _repaired(answer, "clamped")


@check.add(
    "A part that the filter leaves out adds nothing to the sum: add zeros in its place.",
    "mean * keep is NaN where mean is NaN, though keep is 0. torch.where(keep, mean, 0.0) is not. The check of the "
    "shape may stay.",
)
def summary(answer: Callable) -> str:
    """`answer(x, parts)`, x [rows, places, width]: mixing.py, the filter."""
    return _repaired(answer, "summary")
