"""Ride along in a training run: compare both passes of every checkpointed call, and say why where they differ."""

from __future__ import annotations

import contextvars
import sys
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from types import FrameType

import torch
from torch.utils._device import DeviceContext
from torch.utils.checkpoint import CheckpointError

from recompute_lab.instruments.interrupts import uninterrupted
from recompute_lab.instruments.isolation import tensors_in
from recompute_lab.instruments.own_checkpoint import autocast_now
from recompute_lab.instruments.state import Snapshot
from recompute_lab.instruments.witness import conclude, reentrant, words
from recompute_lab.instruments.witness.casts import CastCounter, autocast_is_on
from recompute_lab.instruments.witness.locate import begins
from recompute_lab.instruments.witness.proof import (
    SECONDS,
    Laboratory,
    Output,
    Proof,
    Signature,
    differences,
    entered,
    written_anew,
)
from recompute_lab.instruments.witness.report import Report, worst
from recompute_lab.instruments.witness.saved import Saved
from recompute_lab.instruments.witness.trace import STOPPED, Trace, Tracer

_TORCHS_CHECKPOINT = torch.utils.checkpoint.__file__
_DEEP = 40  # stack frames between torch's checkpoint and the witness's contexts
_MOST_PROOFS = 8  # per segment: an unrepaired fault shows itself in every step
_MOST_LINES = 12  # looked for: a report has room for fewer, and each costs a look after each line


@dataclass(eq=False)
class Call:
    """One checkpointed call that is watched: what it was given, and what both passes did.

    `differs` holds what the recomputation found otherwise than the forward had, by name, with its kind; `again` what
    the recomputation changed, `uses` how often a tensor with a history in the former is used on the way to the loss;
    `replays` says whether torch's streams are replayed. Of a call whose passes are over only the findings are kept.
    """

    segment: Callable
    args: tuple
    kwargs: dict
    replays: bool
    label: str
    before: Snapshot | None = None
    forward: Trace = field(default_factory=Trace)
    recomputation: Trace = field(default_factory=Trace)
    saved: Saved = field(default_factory=Saved)
    outputs: list = field(default_factory=list)
    number_saved: int = 0
    uses: dict[str, float] = field(default_factory=dict)
    surroundings: Callable = entered
    context: contextvars.Context | None = None
    differs: dict[str, str] = field(default_factory=dict)
    again: dict[str, str] = field(default_factory=dict)
    found: Snapshot | None = None
    recomputed: int = 0
    thread: int = 0
    seconds: float = 0.0
    stop_swallowed: bool = False
    unpacked_twice: bool = False
    casts: int | None = None
    casts_again: int = 0
    hints: reentrant.Hints = field(default_factory=reentrant.Hints)
    raised: str = ""
    unwatched: str = ""
    proof: Proof | None = None
    proof_of: frozenset[str] = frozenset()
    number: int | None = None
    _frame: weakref.ref | None = None

    @property
    def frame(self):
        """torch's record of this call; None where it is gone."""
        return None if self._frame is None else self._frame()


class Witness:
    """`checkpoint(segment, x, use_reentrant=False, context_fn=witness.context_fn)`, for one segment or all of a model.

    It finds out by itself what it watches. `reports` has one `Report` for each call that was recomputed, `report()`
    gives the worst. Where checkpointing raises, the explanation is attached to the exception as a note.

    `most_bytes` bounds the copies of tensors that are kept for each call between its two passes (64 MiB): of larger
    state it can be told that it changed, not proven that it is the cause. `prove=False` runs no experiments, which run
    the segment some more times where the passes were found to differ, or once where its code asks for grad mode; in a
    process group of several ranks none are run, since they might communicate.
    """

    def __init__(self, most_bytes: float = 64 << 20, prove: bool = True):
        self._most_bytes, self._prove = most_bytes, prove
        self._lock = threading.RLock()
        self._proofs: dict[tuple, list] = {}
        self._unrecorded: dict[tuple, str] = {}
        self._captured = reentrant.Shared()
        self._reports: list[Report] = []  # and nothing else of a call: its input would be kept alive

    @property
    def reports(self) -> list[Report]:
        """One for each watched call whose recomputation has taken place, in that order."""
        with self._lock:
            return list(self._reports)

    def report(self) -> Report:
        """The worst of all. Raises RuntimeError where nothing was recomputed so far."""
        found = worst(self.reports)
        if found is None:
            raise RuntimeError(
                "the witness has seen no recomputation yet: call `backward()` after the checkpointed forward. A "
                "segment that saves no tensor is never run again."
            )
        return found

    def context_fn(self) -> tuple:
        """Give this to `torch.utils.checkpoint.checkpoint`, with `use_reentrant=False`."""
        seen = _local(sys._getframe(1), "fn", "function")
        if seen is None:
            raise RuntimeError(
                "`witness.context_fn` is called by torch.utils.checkpoint: pass it on, as context_fn=witness.context_fn"
            )
        segment, variables = seen
        args, kwargs = tuple(variables.get("args", ())), dict(variables.get("kwargs", {}))
        call = Call(segment, args, kwargs, variables.get("preserve_rng_state", True), name_of(segment))
        return _Forward(self, call), _Recomputation(self, call)

    def _conclude(self, call: Call, error: BaseException | None) -> None:
        """After a recomputation: what differed, and why. The report is attached to the error, if there is one."""
        if error is not None:
            call.raised = f"{type(error).__name__}: {error}"
        try:
            # A later backward may find more changed than the first did.
            if (call.proof is None or call.proof_of != call.differs.keys()) and conclude.is_suspicious(call):
                call.proof, call.proof_of = self._proven(call), frozenset(call.differs)
            call.hints.unrecorded = self._without_recording(call)
            report = conclude.report_of(call)
        except Exception as failed:  # a diagnosis must not end somebody's run
            report = Report(call.label, notes=[f"the witness failed: {type(failed).__name__}: {failed}"])
        self._enter(call, report)
        if error is not None:
            error.add_note(str(report))
        call.found = None

    def _enter(self, call: Call, report: Report) -> None:
        with self._lock:
            if call.number is None:
                call.number = len(self._reports)
                self._reports.append(report)
            self._reports[call.number] = report

    def _may_run_again(self, call: Call) -> bool:
        return self._prove and not _several_ranks() and call.before is not None and call.found is not None

    def _laboratory(self, call: Call) -> Laboratory:
        return Laboratory(
            call.segment, call.args, call.kwargs, call.before, call.found, call.surroundings,
            Signature.of(call.forward, call.outputs, call.number_saved), seconds=max(SECONDS, 40 * call.seconds),
            most_bytes=self._most_bytes, context=call.context,
        )  # fmt: skip

    def _without_recording(self, call: Call) -> str:
        """Tried once for each segment whose code asks whether gradients are recorded."""
        if not self._may_run_again(call) or call.before.digested & (call.differs.keys() | call.again.keys()):
            return ""
        key = call.label, *(id(function.__code__) for function in call.before.functions)
        if key not in self._unrecorded:
            asks = reentrant.asks_for_recording(call.before)
            self._unrecorded[key] = self._laboratory(call).without_recording() if asks else ""
        return self._unrecorded[key]

    def _proven(self, call: Call) -> Proof | None:
        items = conclude.items_of(call.differs)
        parted = conclude.mismatch(call.forward, call.recomputation) is not None
        key = (call.label, tuple(sorted(item.label for item in items)), parted)
        with self._lock:
            known = self._proofs.setdefault(key, [])
        if known and len(known) >= _MOST_PROOFS:
            return known[-1]
        if not self._may_run_again(call):
            return None
        if call.before.digested & (call.differs.keys() | call.again.keys()):
            return Proof(unfinished="state larger than `most_bytes` differs, and cannot be put back")
        laboratory = self._laboratory(call)
        proof = laboratory.prove(items)
        causes = [name for item in proof.causes for name in sorted(item.names)]
        written = [
            n for n in (*causes, *proof.written) if n in proof.written and (n in call.differs or n in call.again)
        ]
        proof.lines = laboratory.lines([*dict.fromkeys(written)][:_MOST_LINES])
        known.append(proof)
        return proof


def _watching(trace: Trace, casts: bool) -> tuple[ExitStack, CastCounter | None]:
    """The modes that write `trace` and, where wanted, count casts: entered, or none of them where it is interrupted."""
    with ExitStack() as modes:
        with uninterrupted():
            modes.enter_context(Tracer(trace))
            counter = modes.enter_context(CastCounter()) if casts else None
        return modes.pop_all(), counter


class _Forward:
    """Around the forward: takes the state down at its entry, and its log."""

    def __init__(self, witness: Witness, call: Call):
        self._witness, self._call = witness, call

    def __enter__(self) -> None:
        call = self._call
        found = _local(sys._getframe(1), "new_frame")
        call._frame = weakref.ref(found[0]) if found else None
        try:
            call.before = Snapshot.within(self._witness._most_bytes, call.segment, call.args, call.kwargs)
        except Exception as failed:  # a lazy layer, say: a diagnosis must not end somebody's run
            call.unwatched = f"this call was not watched: {failed}"
            return
        call.thread, call.context = threading.get_ident(), contextvars.copy_context()
        modes = [m for m in torch.overrides._get_current_function_mode_stack() if isinstance(m, DeviceContext)]
        autocast = autocast_now()
        call.surroundings = lambda: entered(autocast(), *modes[-1:])
        device = torch.device(modes[-1].device).type if modes else ""
        call.hints = reentrant.at_entry(call.before, call.args, call.kwargs, device, self._witness._captured)
        if call.frame is not None:
            call.saved.watch(call.frame, call.forward)
        self._began = time.perf_counter()
        self._modes, self._counter = _watching(call.forward, autocast_is_on())

    def __exit__(self, kind, error, traceback) -> None:
        call = self._call
        if call.unwatched:
            return
        self._modes.close()
        call.casts = self._counter.casts if self._counter else None
        call.seconds = time.perf_counter() - self._began
        call.saved.forward_ended(call.frame)
        call.number_saved = 0 if call.frame is None else len(call.frame.weak_holders)
        call.forward.ended = "returned" if kind is None else kind.__name__
        seen = _local(sys._getframe(1), "ret", among=("checkpoint", "_checkpoint_impl"))
        if seen is not None and kind is None:
            call.outputs = list(map(Output.of, tensors_in(seen[0])))
            reentrant.at_exit(call.hints, seen[0], call.args, call.before, call.forward.stops_gradients)


class _Recomputation:
    """Around each recomputation. Can be entered again: several backwards recompute several times."""

    def __init__(self, witness: Witness, call: Call):
        self._witness, self._call = witness, call

    def __enter__(self) -> None:
        call = self._call
        if call.unwatched:
            return
        call.recomputed += 1
        reentrant.look_at_ctx(call.hints)
        device = call.hints.device_context
        call.hints.device_lost = bool(device) and torch.empty(0).device.type != device
        call.differs = differences(call.before)
        call.found = call.before  # where nothing differs, it is the same state
        if call.differs:
            call.found = Snapshot.within(self._witness._most_bytes, call.segment, call.args, call.kwargs)
        if threading.get_ident() != call.thread:
            call.hints.other_thread = True
        if call.forward.ended != "running":  # a gradient that the segment takes for itself is none of the caller's
            roots = reentrant.at_recomputation(call.hints, sys._getframe(1))
            if roots and call.differs:
                held = call.before.holding_graphs(call.differs)
                call.uses = {name: max(reentrant.uses(tensors, roots)) for name, tensors in held.items()}
        self._watch_the_comparison()
        self._groups = set() if call.frame is None else set(call.frame.recomp_counter)  # of earlier backwards
        call.recomputation = Trace()
        self._modes, self._counter = _watching(call.recomputation, call.casts is not None)

    def __exit__(self, kind, error, traceback) -> None:
        call = self._call
        if call.unwatched:
            self._witness._enter(call, Report(call.label, notes=[call.unwatched]))
            return
        self._modes.close()
        reentrant.look_at_ctx(call.hints)
        if self._counter:
            call.casts_again = self._counter.casts - call.casts
        stopped = kind is not None and kind.__name__ == STOPPED
        call.recomputation.ended = "stopped early" if stopped else "returned" if kind is None else kind.__name__
        # Nothing has to be looked at twice: but what the forward was found to have written, autograd may not have seen.
        call.again = written_anew(call.found, believed=lambda name: name not in call.differs)
        if call.replays:
            call.again = {n: k for n, k in call.again.items() if not words.is_torchs_stream(n)}
        call.stop_swallowed = not stopped and self._stop_was_raised()
        if isinstance(error, Exception) and not stopped:  # whoever interrupts it wants no experiments
            self._witness._conclude(call, error)

    def _stop_was_raised(self) -> bool:
        """Early stop had its last tensor, and yet its exception has not come through."""
        frame = self._call.frame
        if frame is None or not getattr(frame, "early_stop", False):
            return False
        counts = [count for group, count in frame.recomp_counter.items() if group not in self._groups]
        return any(count >= len(frame.weak_holders) > 0 for count in counts)

    def _watch_the_comparison(self) -> None:
        """torch compares after this context has been left; only there it is known how the recomputation ended."""
        call, witness = self._call, self._witness
        frame = call.frame
        if frame is None or "check_recomputed_tensors_match" in vars(frame):
            return
        compare = frame.check_recomputed_tensors_match

        def compared(gid):
            try:
                compare(gid)
            except CheckpointError as error:
                witness._conclude(call, error)
                raise
            call.saved.compare(frame, gid)
            witness._conclude(call, None)

        frame.check_recomputed_tensors_match = compared
        twice = partial(_unpacked_twice, witness, call)
        for reference in frame.weak_holders:
            if (holder := reference()) is not None:
                holder.handles = _Handles(holder.handles)
                holder.handles.twice = twice


class _Handles(dict):
    """Of a saved tensor: where its recomputed value is. torch puts None there once it has been handed out."""

    __slots__ = ("twice",)

    def __getitem__(self, gid):
        handle = super().__getitem__(gid)
        if handle is None:
            self.twice()
        return handle


def _unpacked_twice(witness: Witness, call: Call) -> None:
    call.unpacked_twice = True
    witness._conclude(call, None)


def _local(frame: FrameType | None, *names: str, among: tuple[str, ...] = ()) -> tuple | None:
    """(value, all variables) of the nearest frame of torch's checkpoint in which one of the names is a variable."""
    for _ in range(_DEEP):
        if frame is None:
            return None
        if frame.f_code.co_filename == _TORCHS_CHECKPOINT and (not among or frame.f_code.co_name in among):
            variables = frame.f_locals
            for name in names:
                if name in variables:
                    return variables[name], variables
        frame = frame.f_back
    return None


def _several_ranks() -> bool:
    distributed = torch.distributed
    return distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1


def name_of(segment: Callable) -> str:
    """What a segment is called: a module's class, a function's qualified name without the functions around it."""
    while isinstance(segment, partial):
        segment = segment.func
    if isinstance(segment, torch.nn.Module):
        return type(segment).__name__
    name = getattr(segment, "__qualname__", type(segment).__name__).rpartition("<locals>.")[2]
    if name == "<lambda>":
        return f"lambda at {begins(segment)}"
    owner = getattr(segment, "__self__", None)
    return name_of(owner) if isinstance(owner, torch.nn.Module) else name
