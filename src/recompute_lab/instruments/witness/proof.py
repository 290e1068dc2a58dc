"""Which of all that differed is the cause: run the segment again with it undone, and with it left standing.

The forward's own log is the reference. First everything that differed is put back: if the segment then does what the
forward did, the set explains the mismatch. Then one thing at a time is left as the recomputation found it: what can be
left so without a difference is no cause, and what remains is a smallest set.
"""

from __future__ import annotations

import contextvars
import math
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

import torch
from torch.autograd.graph import saved_tensors_hooks

from recompute_lab.instruments.digest import digest_of
from recompute_lab.instruments.gradients import ROUNDING
from recompute_lab.instruments.interrupts import uninterrupted
from recompute_lab.instruments.isolation import tensors_in
from recompute_lab.instruments.reach import ABSENT
from recompute_lab.instruments.state import Snapshot, equal_values
from recompute_lab.instruments.witness import words
from recompute_lab.instruments.witness.locate import first_writes
from recompute_lab.instruments.witness.reentrant import nodes_behind, uses
from recompute_lab.instruments.witness.trace import Trace, Tracer

SECONDS = 10.0  # for one proof; a step of the user's is waiting
_REPEATS = 3  # runs from one state, to see whether they agree
_CODE = slice(0, 2)  # of a log entry: operator and results; not the line


@dataclass(frozen=True)
class Output:
    """Of one tensor that a run returned: what tells it from another, without keeping it."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    digest: float | None
    norm: float
    projection: float

    @classmethod
    def of(cls, tensor: torch.Tensor) -> Output:
        digest = digest_of(tensor)
        if digest is None:
            return cls(tuple(tensor.shape), tensor.dtype, None, 0.0, 0.0)
        with torch.no_grad():
            values = tensor.detach().reshape(-1)
            values = (torch.view_as_real(values).reshape(-1) if values.is_complex() else values).double()
            weights = torch.linspace(0.5, 1.5, values.numel(), dtype=torch.float64, device=values.device)
            numbers = torch.stack([digest, values.norm(), (values * weights).sum()]).tolist()
        return cls(tuple(tensor.shape), tensor.dtype, *numbers)

    def is_close(self, other: Output) -> bool:
        """Equal up to rounding, as far as two numbers can tell."""
        if (self.shape, self.dtype) != (other.shape, other.dtype):
            return False
        scale = ROUNDING * max(self.norm, other.norm)
        return abs(self.norm - other.norm) <= scale and abs(self.projection - other.projection) <= scale * 10


@dataclass(frozen=True)
class Signature:
    """What a run did and gave, to be compared: operators, routes, how many tensors it saved, and its outputs.

    Not what Python read: a number that is read and changes none of these does no harm (BatchNorm's own counter, say).
    """

    operators: list[tuple]
    indices: list[tuple[int, float]]
    outputs: list[Output]
    saved: int
    ended: str = "returned"

    @classmethod
    def of(cls, trace: Trace, outputs: list[Output], saved: int) -> Signature:
        return cls([entry[_CODE] for entry in trace.operators], trace.index_values(), outputs, saved, trace.ended)

    def is_close(self, other: Signature) -> bool:
        """The same but for rounding in the outputs."""
        mine = self.operators, self.indices, self.saved, self.ended
        return mine == (other.operators, other.indices, other.saved, other.ended) and _close(
            self.outputs, other.outputs
        )


def _close(outputs: list[Output], others: list[Output]) -> bool:
    return len(outputs) == len(others) and all(map(Output.is_close, outputs, others))


def differences(before: Snapshot, believed: Callable[[str], bool] | None = None) -> dict[str, str]:
    """What is otherwise than it was, by name, with its kind."""
    found = before.changed_kinds(believed)
    found |= {name: "random stream" for name in before.moved_streams()}
    found |= {name: "switch" for name in before.moved_switches()}
    return found | {name: "context variable" for name in before.moved_context()}


def written_anew(found: Snapshot, believed: Callable[[str], bool] | None = None) -> dict[str, str]:
    """What differs in value: who assigns an equal tuple or tensor once more has changed nothing."""
    if not (differs := differences(found, believed)):
        return {}
    now, before = found.values_now(differs), found.values_before(differs)
    # Of a context variable no value is known.
    return {n: kind for n, kind in differs.items() if now[n] is ABSENT or not equal_values(now[n], before[n])}


@dataclass
class Item:
    """Things that are undone together: they belong together, as the statistics of one BatchNorm do."""

    group: tuple
    names: frozenset[str]

    @property
    def label(self) -> str:
        return words.label(self.group, self.names)


@dataclass
class Proof:
    """What the experiments showed.

    `matters` is True where the segment, run in the recomputation's world, does not do what the forward did; None where
    that was not tried. `causes` is the smallest set found, and `proven` says whether undoing it is enough; of those in
    `untried` it is not known whether they are needed. `repeatable` is False where two runs from one state differ,
    `kernels` True where they no longer do with deterministic kernels. `written` names what a forward changes, with its
    kind, `written_there` what it changes in the recomputation's world, `lines` where it does. `graphs` names which of
    it holds a tensor with a history, and how often the segment itself goes on to use that; `built_on` which of these
    the next run builds on. `off` is the relative difference of the outputs, `runs` how often the segment ran,
    `unfinished` a sentence on what was not tried. `same_output` is True where the segment, run in the recomputation's
    world, returns what the forward did, up to rounding, `same_shapes` where at least the shapes are the same.
    `rewritten` names what it then leaves with another value than it finds: it is run to its end, as the reentrant
    implementation runs it.
    """

    matters: bool | None = None
    proven: bool = False
    causes: list[Item] = field(default_factory=list)
    untried: list[Item] = field(default_factory=list)
    repeatable: bool = True
    kernels: bool = False
    written: dict[str, str] = field(default_factory=dict)
    written_there: dict[str, str] = field(default_factory=dict)
    rewritten: dict[str, str] = field(default_factory=dict)
    same_output: bool | None = None
    same_shapes: bool = True
    graphs: dict[str, float] = field(default_factory=dict)
    built_on: set[str] = field(default_factory=set)
    lines: dict[str, str] = field(default_factory=dict)
    off: float | None = None
    runs: int = 0
    unfinished: str = ""


class Laboratory:
    """Runs a segment in the world of its forward, in that of its recomputation, and in mixtures of the two.

    `forward` and `recomputation` are snapshots; `surroundings` gives a context manager with the autocast and device of
    the forward, `context` the values of its context variables. Whatever is run, afterwards the state is what it was.
    """

    def __init__(
        self,
        segment: Callable,
        args: tuple,
        kwargs: dict,
        forward: Snapshot,
        recomputation: Snapshot,
        surroundings: Callable,
        reference: Signature,
        seconds: float = SECONDS,
        most_bytes: float = math.inf,
        context: contextvars.Context | None = None,
    ):
        self.segment, self.args, self.kwargs = segment, args, kwargs
        self.forward, self.recomputation = forward, recomputation
        self.surroundings, self.reference = surroundings, reference
        self._most_bytes = most_bytes
        self._until = time.monotonic() + seconds
        # Two of them: a variable that was not set cannot be unset, but by leaving one.
        self._there = contextvars.copy_context()
        self._context = self._there if context is None else context  # an empty one is false
        self._unset = forward.unset_context()
        self._plain_output: list[torch.Tensor] = []
        self._raised = ""
        self.proof = Proof()

    def prove(self, items: list[Item]) -> Proof:
        """Raises nothing of the segment's: what it raises in an experiment is one of its outcomes."""
        proof, now = self.proof, self._state()
        try:
            restored = self._run(frozenset(), watch=True)
            self._expect_repeats(restored, _REPEATS)
            if restored != self.reference and (not items or restored.is_close(self.reference)):
                self._not_repeatable()
            proof.matters = not self._same(restored)
            self._compare_outputs(restored)
            if items and not proof.matters:
                self._undo(items)
                if proof.proven and not self._expect_repeats(restored, 1):
                    self._undo(items)  # the segment races, as is seen only now: rounding is no difference
        except _OutOfTime:
            proof.unfinished = proof.unfinished or f"the experiments were stopped after {proof.runs} runs"
        finally:
            now.restore()
        return proof

    def _compare_outputs(self, run: Signature) -> None:
        self.proof.same_output = _close(run.outputs, self.reference.outputs)
        shapes, expected = ([output.shape for output in s.outputs] for s in (run, self.reference))
        self.proof.same_shapes = shapes == expected

    def _undo(self, items: list[Item]) -> None:
        """With everything as the recomputation found it; then the smallest set that has to be undone."""
        everything = frozenset().union(*(item.names for item in items))
        found = self._run(everything, compare=True)
        self.proof.matters = not self._same(found)
        self._compare_outputs(found)
        self.proof.causes = self._harmful(self._smallest(items)) if self.proof.matters else []
        self.proof.proven = self.proof.matters

    def _expect_repeats(self, first: Signature, times: int) -> bool:
        repeats = all(self._run(frozenset()) == first for _ in range(times))
        if not repeats:
            self._not_repeatable()
        return repeats

    def _not_repeatable(self) -> None:
        if self.proof.repeatable:
            self.proof.repeatable = False
            self.proof.kernels = self._repeatable_with_deterministic_kernels() and not self._settled()

    def _settled(self) -> bool:
        """Without deterministic kernels they agree by now, too: what made them differ was used up by running."""
        first = self._run(frozenset())
        return all(self._run(frozenset()) == first for _ in range(2 * _REPEATS))

    def _repeatable_with_deterministic_kernels(self) -> bool:
        mode = torch.get_deterministic_debug_mode()
        try:
            torch.use_deterministic_algorithms(True, warn_only=True)
            self.forward.set_switch("determinism", torch.get_deterministic_debug_mode())
            first = self._run(frozenset())
            return all(self._run(frozenset()) == first for _ in range(_REPEATS))
        finally:
            with uninterrupted():
                self.forward.set_switch("determinism", mode)
                torch.set_deterministic_debug_mode(mode)

    def without_recording(self) -> str:
        """What comes of a forward under `no_grad`, as reentrant runs it: the error it raises, "other" where it returns
        something else, "" where it returns the same, or where two recorded forwards do not.
        """
        now = self._state()
        try:
            if not self._same(self._run(frozenset())):
                return ""
            unrecorded = self._run(frozenset(), recorded=False)
        except _OutOfTime:
            return ""
        finally:
            now.restore()
        if unrecorded.ended != "returned":
            return self._raised
        return "" if _close(unrecorded.outputs, self.reference.outputs) else "other"

    def lines(self, names: list[str]) -> dict[str, str]:
        """Where a forward writes each of `names`: "file.py:12"."""
        return self._context.copy().run(self._lines, names)

    def _lines(self, names: list[str]) -> dict[str, str]:
        now = self._state()
        try:
            self.forward.restore(aside=True)
            looks = self._state().fingerprints(names)
            return first_writes(lambda: self._call(Trace(), [0]), looks)
        finally:
            now.restore()

    def _state(self) -> Snapshot:
        return Snapshot.within(self._most_bytes, self.segment, self.args, self.kwargs)

    def _smallest(self, items: list[Item]) -> list[Item]:
        """Drop what can stay as the recomputation found it; halves first, so that many things need few runs.

        Where there is no time for all, what was not tried is left among the causes, behind those that were.
        """
        left: frozenset[str] = frozenset()
        needed: list[Item] = []
        todo = [items]
        while todo:
            group = todo.pop()
            names = frozenset().union(*(item.names for item in group))
            if len(items) == 1:
                return items
            try:
                agrees = self._same(self._run(left | names))
            except _OutOfTime:
                rest = [item for untried in (group, *reversed(todo)) for item in untried]
                self.proof.unfinished = f"{len(rest)} of {len(items)} things could not be told apart in time"
                self.proof.untried = rest
                return needed + rest
            if agrees:
                left |= names
            elif len(group) == 1:
                needed.append(group[0])
            else:
                half = len(group) // 2
                todo += [group[half:], group[:half]]
        return needed

    def _harmful(self, causes: list[Item]) -> list[Item]:
        """Without those that change which operators run, and nothing that is returned or saved; all, if all do."""
        try:
            rest = [item for item in causes if len(causes) > 1 and not self._same_results(self._run(item.names))]
            left = frozenset().union(*(item.names for item in causes if item not in rest))
            return rest if rest and self._same_results(self._run(left)) else causes
        except _OutOfTime:
            return causes

    def _same_results(self, run: Signature) -> bool:
        mine = self.reference
        return (run.saved, run.ended) == (mine.saved, mine.ended) and _close(run.outputs, mine.outputs)

    def _same(self, run: Signature) -> bool:
        """As the forward; up to rounding where no two runs agree to the last bit."""
        return run == self.reference or (not self.proof.repeatable and run.is_close(self.reference))

    def _run(
        self, left: frozenset[str], watch: bool = False, compare: bool = False, recorded: bool = True
    ) -> Signature:
        """One run from the forward's world, in which `left` is as the recomputation found it."""
        if time.monotonic() > self._until:
            raise _OutOfTime
        self.proof.runs += 1
        context = self._there if left & self.recomputation.unset_context() else self._context
        return context.copy().run(self._run_there, left, watch, compare, recorded)

    def _run_there(self, left: frozenset[str], watch: bool, compare: bool, recorded: bool) -> Signature:
        self.recomputation.restore(keep=self._unset - left)
        self.forward.restore(keep=left, aside=True)
        kept = self.recomputation.holding_graphs(self.proof.graphs) if compare else {}
        trace, saved = Trace(), [0]
        output = self._call(trace, saved, recorded)
        if watch:
            self.proof.written = self.forward.changed_kinds()
            self.proof.written |= {name: "random stream" for name in self.forward.moved_streams()}
            held = self.forward.holding_graphs(self.proof.written)
            self.proof.graphs = {name: max(uses(tensors, output, inner=True)) for name, tensors in held.items()}
            self._plain_output = [t.detach().clone() for t in output]
        if compare:
            self.proof.written_there = self.recomputation.changed_kinds()
            nodes = nodes_behind(output)
            self.proof.built_on = {name for name, found in kept.items() if any(t.grad_fn in nodes for t in found)}
            self.proof.rewritten = written_anew(self.recomputation)
            self.proof.off = _off(self._plain_output, output)
        return Signature.of(trace, list(map(Output.of, output)), saved[0])

    def _call(self, trace: Trace, saved: list[int], recorded: bool = True) -> list[torch.Tensor]:
        def counted(tensor: torch.Tensor) -> torch.Tensor:
            saved[0] += 1
            return tensor.detach()

        # Only the innermost hooks are asked: a checkpoint in whose recomputation this may be counts none of it.
        with saved_tensors_hooks(counted, lambda t: t), torch.set_grad_enabled(recorded), self.surroundings():
            try:
                with Tracer(trace):
                    output = self.segment(*self.args, **self.kwargs)
                trace.ended = "returned"
                return tensors_in(output)
            except Exception as error:
                trace.ended = type(error).__name__
                self._raised = " ".join(f"{trace.ended}: {error}".split())
                return []


class _OutOfTime(Exception):
    pass


def _off(baseline: list[torch.Tensor], other: list[torch.Tensor]) -> float | None:
    """The largest relative difference of two runs' outputs, in the Euclidean norm; None where they do not compare."""
    if len(baseline) != len(other) or any(a.shape != b.shape for a, b in zip(baseline, other, strict=True)):
        return None
    worst = 0.0
    for a, b in zip(baseline, other, strict=True):
        if a.is_floating_point() and a.numel():
            a, b = a.double(), b.detach().double()
            worst = max(worst, float((a - b).norm() / a.norm().clamp_min(1e-30)))
    return worst


@contextmanager
def entered(*contexts) -> Iterator[None]:
    with ExitStack() as stack:
        for context in contexts:
            stack.enter_context(context)
        yield
