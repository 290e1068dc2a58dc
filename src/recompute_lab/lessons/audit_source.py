"""Lesson 06: the small project searched, audited and run; what each of the three sees, and what a repair keeps."""

from __future__ import annotations

import os
import textwrap
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from unittest.mock import patch

import torch

from recompute_lab.instruments.audit import Audit, Finding, audit
from recompute_lab.instruments.audit.formats import summary
from recompute_lab.instruments.checkpointing import weighted_sum
from recompute_lab.instruments.gradients import Divergence, divergence
from recompute_lab.instruments.grep import Hits, grep
from recompute_lab.instruments.ledger import record
from recompute_lab.instruments.nondeterminism import Nudge
from recompute_lab.instruments.state import same_bits
from recompute_lab.instruments.witness.trace import Trace, Tracer
from recompute_lab.repairs.recomputation import announced
from recompute_lab.specimens import mended_project as mended
from recompute_lab.specimens import small_project
from recompute_lab.specimens.small_project import Config, Trainer, batch, blocks, caps, mixing
from recompute_lab.views.audit import Row, Stage

PROJECT = Path(small_project.__file__).parent


@dataclass(frozen=True)
class Site:
    """One decision on a tensor's value, found by reading the project. `code` stands in one line of `file`; where the
    value is read into Python in another line, `read` is (file, code) of that one."""

    form: str
    file: str
    code: str
    read: tuple[str, str] | None = None

    @property
    def place(self) -> str:
        """As in "caps.py:26"."""
        return place(self.file, self.code)

    @property
    def read_at(self) -> str:
        return place(*self.read) if self.read else self.place


SITES = (
    Site("a method, in the line of the if", "caps.py", "        if over.any():"),
    Site("the same, behind a dtype", "blocks.py", "if x.dtype == torch.float16 and"),
    Site("the same, only raises", "experts.py", "torch.isnan(scores).any():"),
    Site("the same, outside of any checkpoint", "scoring.py", "if not wanted.any():"),
    Site("a comparison after the call; only logs", "experts.py", "(sent == 0).sum() >"),
    Site("a function, torch.equal", "health.py", "if not torch.equal(a, b):"),
    Site("read in one line, decided in the next", "model.py", "if largest >=", ("model.py", "largest = tokens")),
    Site("by a helper, behind a switch", "blocks.py", "is_settled(update,", ("blocks.py", ".item() < tolerance")),
    Site("by an attribute", "blocks.py", "if self.hot:"),
    Site("by a keyword", "mixing.py", "if padded:"),
    Site("a ternary", "mixing.py", "if deviation > 0 else"),
    Site("`or`, for its value", "model.py", "or self.config.places // 2"),
    Site("a filter", "mixing.py", "live = [mean for"),
    Site("a loop over nonzero()", "experts.py", "for number in sent.nonzero()"),
    Site("an index into a list of layers", "experts.py", "self.experts[number](x[rows])"),
    Site("a dictionary of functions", "blocks.py", "BENDS[int(reach)](x)"),
    Site("by a helper in another file", "blocks.py", "if overflowed(x):", ("health.py", "return bool(torch.isinf(x)")),
    Site("int() of an untyped argument", "mixing.py", "in range(rounds(", ("health.py", "1 + int(amount)")),
)


def place(file: str, code: str) -> str:
    """Where `code` stands, "file.py:12". Raises LookupError unless it stands in exactly one line."""
    lines = (PROJECT / file).read_text(encoding="utf-8").splitlines()
    numbers = [number for number, line in enumerate(lines, 1) if code in line]
    if len(numbers) != 1:
        raise LookupError(f"{code!r} stands in {len(numbers)} lines of {file}, not in one")
    return f"{file}:{numbers[0]}"


def short(found: Finding) -> str:
    """A finding's place without its folders and column: "caps.py:26"."""
    return f"{Path(found.path).name}:{found.line}"


def branches(found: Audit) -> list[Finding]:
    return [one for one in found.findings if one.rule == "tensor-branch"]


def finding(found: Audit, where: str) -> Finding:
    """The branch at "file.py:12". Raises LookupError where there is none."""
    for one in branches(found):
        if short(one) == where:
            return one
    raise LookupError(f"the audit has no branch at {where}")


def shown(one: Finding) -> str:
    """A finding's text, with its path from the project's folder on, in lines that fit the page."""
    text = str(one).replace(f"{PROJECT.parent}{os.sep}", "")
    return "\n".join(
        textwrap.fill(line, 96, initial_indent="", subsequent_indent=" " * 8, break_on_hyphens=False)
        for line in text.split("\n")
    )


@dataclass(frozen=True)
class Searched:
    """What the grep and the audit say of the project, in places. `others`: the grep's hits that are no decision."""

    hits: Hits
    audited: Audit
    by_grep: frozenset[str]
    by_audit: frozenset[str]
    others: tuple[str, ...]


def searched() -> Searched:
    hits, audited = grep(PROJECT), audit(PROJECT)
    places = {site.place for site in SITES}
    by_grep = [f"{hit.file}:{hit.line}" for hit in hits]
    return Searched(
        hits, audited, frozenset(by_grep), frozenset(map(short, branches(audited))),
        tuple(where for where in by_grep if where not in places),
    )  # fmt: skip


# --- The same code, run


@dataclass
class Seen:
    """The values that Python read in one line: in checkpointed forwards, in their recomputations, elsewhere."""

    forward: list = field(default_factory=list)
    recomputation: list = field(default_factory=list)
    outside: list = field(default_factory=list)

    @property
    def values(self) -> list:
        return [*self.forward, *self.recomputation, *self.outside]

    @property
    def in_a_checkpoint(self) -> bool:
        return bool(self.forward or self.recomputation)

    def __str__(self) -> str:
        """The different values, in words; a number that is neither is told as one."""
        kinds = set(map(type, self.values))
        if not kinds:
            return "not read"
        if kinds == {bool}:
            only = set(self.values)
            said = "True and False" if len(only) == 2 else f"always {only.pop()}"
        elif kinds == {int}:
            said = ", ".join(map(str, sorted(set(self.values))))
        else:
            said = "a number"
        return said + (", in forward only" if self.forward and not self.recomputation else "")


def observed(steps: int = 3) -> dict[str, Seen]:
    """Train the project for `steps` steps and evaluate it once; every value that Python read, by its line.

    The log is the witness's: a tracer around each checkpointed forward and around its recomputation, and one around
    everything else.
    """
    passes: list[tuple[Trace, Trace]] = []

    def context_fn():
        passes.append((Trace(), Trace()))
        return tuple(map(Tracer, passes[-1]))

    elsewhere, trainer = Trace(), Trainer()
    trainer.model.context_fn = context_fn
    with Tracer(elsewhere):
        for number in range(steps):
            trainer.step(number)
        trainer.evaluate()
    seen: dict[str, Seen] = defaultdict(Seen)
    logs = [("outside", elsewhere)]
    for forward, recomputation in passes:
        logs += [("forward", forward), ("recomputation", recomputation)]
    for name, trace in logs:
        for read in trace.reads:
            getattr(seen[read.where], name).append(read.value)
    return dict(seen)


def undecided(seen: dict[str, Seen]) -> list[str]:
    """Lines that read a value and decide nothing by it: a run cannot tell them from the others."""
    return sorted(set(seen) - {site.read_at for site in SITES})


# --- Triage


@dataclass(frozen=True)
class Narrowed:
    """One question, the findings that are left after it, and those that it put aside."""

    question: str
    left: tuple[Finding, ...]
    aside: tuple[Finding, ...]


def triage(found: Audit, seen: dict[str, Seen]) -> list[Narrowed]:
    """The questions in the order that matters. A run completes what the audit has not seen."""
    reads = {site.place: seen.get(site.read_at, Seen()) for site in SITES}

    def inside(one: Finding) -> bool:
        return one.checkpoint != "not seen" or reads[short(one)].in_a_checkpoint

    def armed(one: Finding) -> bool:
        return one.guard is None or bool(reads[short(one)].values)

    def of_the_graph(one: Finding) -> bool:
        return one.decides in ("graph", "shape")

    questions = (
        ("seen inside a checkpoint, by the audit or by a run", inside),
        ("not held back by a guard today", armed),
        ("decides which operations run", of_the_graph),
    )
    left = tuple(branches(found))
    steps = [Narrowed("branches on a tensor's value", left, ())]
    for question, keeps in questions:
        kept = tuple(one for one in left if keeps(one))
        steps.append(Narrowed(question, kept, tuple(one for one in left if one not in kept)))
        left = kept
    return steps


def forms(searched: Searched) -> list[Row]:
    """A row for each site: does the grep see it, does the audit?"""
    return [
        Row(site.form, site.place, ((site.place in searched.by_grep, ""), (site.place in searched.by_audit, "")))
        for site in SITES
    ]


def static_and_dynamic(searched: Searched, seen: dict[str, Seen]) -> list[Row]:
    """A row for each site: what the audit says of its checkpoint, and what a run read there."""
    rows = []
    for site in SITES:
        known = site.place in searched.by_audit
        said = finding(searched.audited, site.place).checkpoint if known else ""
        run = seen.get(site.read_at, Seen())
        rows.append(Row(site.form, site.place, ((known, said), (bool(run.values), str(run)))))
    return rows


_ASIDE = (
    'not seen is never "no": noted, not forgotten',
    "dormant is not fixed: next on the list",
    "an exception: move it out; a log: it may stay",
)


def stages(searched: Searched, seen: dict[str, Seen]) -> list[Stage]:
    """The triage for a figure, from all lines that the grep or the audit reports."""
    first, *others = triage(searched.audited, seen)
    reported = len(searched.by_grep | searched.by_audit)
    made = [
        Stage("lines that the grep or the audit reports", reported),
        Stage(first.question, len(first.left), "text, NumPy, a configuration, a class of one's own"),
    ]
    for one, told in zip(others, _ASIDE, strict=True):
        places = ", ".join(map(short, one.aside))
        made.append(Stage(one.question, len(one.left), f"{places}\n{told}"))
    return made


def report(path: str | Path, most: int = 12) -> str:
    """An audit in lines, what to look at first in front; or a sentence, where there is nothing at that path."""
    root = Path(path).expanduser()
    try:
        found = audit(root)
    except FileNotFoundError:
        return f"there is no file or folder at this path: {path}. Is it spelt as it is on your disk?"
    folder = root if root.is_dir() else root.parent
    ordered = sorted(found.findings, key=_urgency)
    lines = []
    for one in ordered[:most]:
        cell = f"cell {one.cell}:" if one.cell is not None else ""
        where = f"{Path(one.path).relative_to(folder).as_posix()}:{cell}{one.line}"
        what = f"{one.decides if one.rule == 'tensor-branch' else 'write'}{', guarded' if one.guard else ''}"
        lines.append(f"{where:<14} {what:<19} checkpoint: {one.checkpoint:<9} {_cut(one.source, 38)}")
    if len(ordered) > most:
        lines.append(f"and {len(ordered) - most} more")
    counted = summary(found).partition("what this cannot see")[0].strip()
    return "\n".join([*lines, counted])


def _urgency(one: Finding) -> tuple[bool, ...]:
    """What comes first sorts first: branches, inside a checkpoint, of the graph, with no guard."""
    return (
        one.rule != "tensor-branch",
        one.checkpoint == "not seen",
        one.decides not in ("graph", "shape"),
        one.guard is not None,
    )


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 3]}..."


# --- Repairs


@dataclass(frozen=True)
class Compared:
    """A repair against what it repairs, over many inputs.

    `told`: the values that the original read into Python. `outputs` and `gradients`: in how many inputs they are equal
    in every bit (a gradient of None stands for zeros). `saved`: how many tensors each saves for backward.
    """

    inputs: int
    told: frozenset
    outputs: int
    gradients: int
    saved: tuple[frozenset[int], frozenset[int]]

    def __str__(self) -> str:
        before, after = (" or ".join(map(str, sorted(counts))) for counts in self.saved)
        read = ", ".join(map(str, sorted(self.told, key=str)))
        return (
            f"the original read {read}; it saves {before} tensors, the repaired one {after}\n"
            f"    {self.inputs} inputs, equal in every bit: outputs {self.outputs}, gradients {self.gradients}"
        )


def compared(original: Callable, repaired: Callable, inputs: Iterable[Sequence[torch.Tensor]]) -> Compared:
    """Both are given the same arguments, of which the floating-point ones require grad; modules: the same weights."""
    told, outputs, gradients, total, saved = set(), 0, 0, 0, (set(), set())
    for arguments in inputs:
        trace = Trace()
        with Tracer(trace):
            original(*_leaves(arguments))
        told |= {read.value for read in trace.reads}
        ours, theirs = (_outcome(segment, arguments) for segment in (original, repaired))
        total += 1
        outputs += same_bits(ours[0], theirs[0])
        gradients += all(map(same_bits, ours[1:], theirs[1:]))
        for counts, segment in zip(saved, (original, repaired), strict=True):
            counts.add(len(record(segment, *_leaves(arguments))))
    return Compared(total, frozenset(told), outputs, gradients, tuple(map(frozenset, saved)))


def _leaves(arguments: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    return [a.detach().clone().requires_grad_(a.is_floating_point()) for a in arguments]


def _outcome(segment: Callable, arguments: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Output, and gradients of all arguments and parameters."""
    given = _leaves(arguments)
    leaves = [a for a in given if a.requires_grad]
    if isinstance(segment, torch.nn.Module):
        leaves += segment.parameters()
    output = segment(*given)
    found = torch.autograd.grad(weighted_sum(output), leaves, allow_unused=True)
    gradients = [torch.zeros_like(leaf) if g is None else g for leaf, g in zip(leaves, found, strict=True)]
    return [output.detach(), *gradients]


def twins(first: type, second: type, *arguments) -> tuple[torch.nn.Module, torch.nn.Module]:
    """One module of each class, with the same weights."""
    made = []
    for kind in (first, second):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            made.append(kind(*arguments))
    return tuple(made)


def spreads() -> tuple[Callable, Callable]:
    """The mixer's `spread` of [8, 12, 16] and its padding, as it is and repaired, with the same weights."""
    mixer = twins(mixing.Mixer, mixing.Mixer, Config())[0]
    return lambda x, padding: mixer.spread(x, padding, padded=padding.any()), partial(_spread, mixer)


def activations(count: int = 40, scales: Sequence[float] = (1.0,)) -> list[torch.Tensor]:
    """[8, 12, 16], float32, seeded; the scales take turns."""
    shape = 8, Config.places, Config.width
    return [
        scales[seed % len(scales)] * torch.randn(shape, generator=torch.Generator().manual_seed(seed))
        for seed in range(count)
    ]


def paddings(count: int = 40) -> list[torch.Tensor]:
    """[8, 12], bool: of every second batch some places are padding."""
    config = Config()
    return [batch(config, seed, shortest=4 if seed % 2 else config.places)[0] == 0 for seed in range(count)]


@contextmanager
def repaired_project():
    """Inside, the project is made of the repaired parts."""
    with ExitStack() as stack:
        enter = stack.enter_context
        enter(patch.dict(caps.CAPS, norm=mended.AlwaysCapped))
        enter(patch.object(blocks, "Experts", mended.EveryExpert))
        enter(patch.object(mixing, "standardised", mended.standardised))
        enter(patch.object(mixing.Mixer, "spread", _spread))
        enter(patch.object(blocks.Block, "bent", lambda self, x: mended.every_bend(x)))
        yield


def _spread(self, x, padding, padded=False):
    return self.across(mended.padding_always_filled(x, padding).transpose(1, 2)).transpose(1, 2)


@dataclass(frozen=True)
class Trained:
    losses: list[float]
    weights: list[torch.Tensor]
    loads: list[int]  # rows that the experts of each block counted

    def same_as(self, other: Trained) -> bool:
        """Losses and weights, in every bit."""
        return self.losses == other.losses and all(map(same_bits, self.weights, other.weights))


def trained(steps: int = 5, checkpointed: bool = True) -> Trained:
    trainer = Trainer(Config(checkpointed=checkpointed))
    trainer.model.context_fn = announced
    losses = [trainer.step(number) for number in range(steps)]
    weights = [parameter.detach().clone() for parameter in trainer.model.parameters()]
    loads = [int(block.experts.load.sum()) for block in trainer.model.blocks]
    return Trained(losses, weights, loads)


def flipped_route(kind: type) -> Divergence:
    """A step of the experts, checkpointed, in whose forward the first expert is chosen and in whose recomputation the
    second, by some units in the last place of the input. `kind` is `Experts`, or a repair of it."""
    nudge, experts = Nudge({1: -16, 2: +16}), twins(kind, kind, Config())[0]
    with torch.no_grad():  # scores of 1 + a and 2 a for an input of a everywhere: a tie at 1
        experts.gate.weight.zero_()
        experts.gate.bias.copy_(torch.tensor([1.0, 0.0, -9.0, -9.0]))
        experts.gate.weight[0], experts.gate.weight[1] = 1 / Config.width, 2 / Config.width
    x = torch.ones(8, Config.places, Config.width, requires_grad=True)
    outside = (experts.choose(x),) if hasattr(experts, "choose") else ()
    return divergence(nudge.counted(lambda x, *choice: experts(nudge(x), *choice)), x, *outside)
