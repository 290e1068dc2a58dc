"""From what was seen of a call to a report: verdicts, and causes in their order."""

from __future__ import annotations

import math
import textwrap

from recompute_lab.instruments.checkpointing import Mismatch
from recompute_lab.instruments.gradients import ROUNDING
from recompute_lab.instruments.reach import WEAK
from recompute_lab.instruments.witness import reentrant, words
from recompute_lab.instruments.witness.locate import begins, codes_of, mention
from recompute_lab.instruments.witness.proof import Item, Proof
from recompute_lab.instruments.witness.report import LOUD, REPLAYABLE, SIDE_EFFECT, SILENT, Cause, Report, severity
from recompute_lab.instruments.witness.trace import Read, Trace, place

_NON_REENTRANT = ("non-reentrant",)
Judged = tuple[str, Cause]  # what comes of a cause: a verdict


def items_of(differs: dict[str, str]) -> list[Item]:
    """What differs, with what belongs together taken together."""
    groups: dict[tuple, list[str]] = {}
    for name, kind in differs.items():
        groups.setdefault(words.group_of(name, kind), []).append(name)
    return [Item(group, frozenset(names)) for group, names in groups.items()]


def mismatch(first: Trace, second: Trace) -> tuple[int, str] | None:
    """The first place at which the passes part, as far as the recomputation went: (operator, what differs)."""
    for number, (a, b) in enumerate(zip(first.operators, second.operators, strict=False)):
        if a[0] != b[0]:
            return number, f"{a[0]} in forward, {b[0]} in recomputation"
        if a[1] != b[1]:
            return number, f"{a[0]} gives another shape or dtype"
    # In their order, and not by number: a sort gives two tensors of whole numbers.
    for (number, before), (other, after) in zip(first.index_values(), second.index_values(), strict=False):
        if number == other and before != after:
            return number, f"{first.name(number)} gives other whole numbers: another route, or mask"
    counts = len(first.operators), len(second.operators)
    if counts[1] > counts[0] or (second.ended == "returned" and counts[1] < counts[0]):
        return min(counts), f"{counts[0]} operators in forward, {counts[1]} in recomputation"
    return None


def flipped_read(first: Trace, second: Trace) -> tuple[Read, Read] | None:
    """The first value that Python read otherwise in the recomputation."""
    for a, b in zip(first.reads, second.reads, strict=False):
        if (a.operator, a.where) != (b.operator, b.where):
            return None
        if repr(a.value) != repr(b.value):
            return a, b
    return None


def is_suspicious(call) -> bool:
    """Is there anything to be explained?"""
    passes = call.forward, call.recomputation
    seen = call.differs or call.again or call.raised or call.saved.differs
    return bool(seen or mismatch(*passes) or flipped_read(*passes))


def report_of(call) -> Report:
    """The report of a watched call; its verdict for the reentrant implementation is what that would do."""
    proof, parted = call.proof or Proof(), mismatch(call.forward, call.recomputation)
    if call.stop_swallowed:  # they part where the handler goes on, after all that was to be recomputed
        parted = None
    # Where all that was saved is the same, the gradients are, whatever else differs. The reverse does not hold: some
    # kernels save what they do not use, as BatchNorm its running statistics.
    changed = {name for name, kind in call.differs.items() if kind == "parameter"}  # may be saved by its place alone
    right = call.saved.differs == [] and changed <= proof.written.keys()
    matters = call.saved.certainly_differs(call.forward) if proof.matters is None else proof.matters
    broken = bool(call.raised or ((parted or matters) and not right))
    verdict = LOUD if call.raised else SILENT if broken else REPLAYABLE
    elsewhere = _elsewhere(call)
    causes = _protocol(call) + elsewhere + [(SIDE_EFFECT, cause) for cause in _left_open(call, proof)]
    if broken:
        causes += [(verdict, cause) for cause in _state(call, proof)]
    if broken and not causes:
        causes.append((verdict, _unexplained(call, proof, parted)))
    twice = [(SIDE_EFFECT, cause) for cause in _twice(call, proof, proof.causes if broken else [])]
    causes += twice
    # The reentrant implementation does not ask what was saved: to it, another rounding is all there is.
    off = matters and not proof.same_output and (proof.off is None or proof.off > ROUNDING)
    again = twice or _lasting(proof.rewritten)
    shared = SILENT if off or (parted and not right) else SIDE_EFFECT if again else REPLAYABLE
    if _own_error(call) or (off and not proof.same_shapes):  # the gradients that arrive fit the forward's outputs
        shared = LOUD
    only = (
        [judged for judged in reentrant.causes(call.hints) if not elsewhere or judged[1].name != elsewhere[0][1].name]
        + _collected(call, proof)
        + (_late(call, proof, [c for _, c in causes]) if shared == SIDE_EFFECT else [])
    )
    report = Report(
        call.label,
        reentrant=max([shared, *(v for v, _ in elsewhere + only)], key=severity),
        non_reentrant=LOUD if call.raised else max([verdict, *(v for v, _ in causes)], key=severity),
        causes=[cause for _, cause in causes + only],
        effect=_effect(call, proof, parted if broken or shared == SILENT else None),
        notes=_notes(call, proof),
        watched=True,
    )
    return report


def _elsewhere(call) -> list[Judged]:
    """The forward's default device, where torch has not entered it again and what was saved shows it."""
    if not (call.hints.device_lost and (call.raised or call.saved.differs)):
        return []
    told = "this version of torch does not enter it again: the recomputation makes tensors on the default device."
    cause = Cause(reentrant.DEVICE_CONTEXT, "", False, told, "give device= where tensors are made.")
    return [(LOUD if call.raised else SILENT, cause)]


def _own_error(call) -> bool:
    """Did the segment's own code raise when it ran again? It would under either implementation."""
    ended = call.recomputation.ended
    return (
        bool(call.raised) and not call.stop_swallowed and ended not in ("returned", "stopped early", "CheckpointError")
    )


def _state(call, proof: Proof) -> list[Cause]:
    """What the experiments have shown to be the cause; without experiments, all that differs."""
    if proof.proven:
        return [_read(call, proof, item, item not in proof.untried) for item in proof.causes]
    return [_read(call, proof, item, False) for item in items_of(call.differs)] if proof.matters is None else []


def _read(call, proof: Proof, item: Item, proven: bool) -> Cause:
    names = sorted(item.names)
    told, repair = words.read(item.group, names[0], any(name in proof.written for name in names))
    return Cause(item.label, _where(call, proof, names), proven, told, repair, item.group[0])


def _where(call, proof: Proof, names: list[str]) -> str:
    """Where it is written; else where it is named; else where the segment begins."""
    written = next((proof.lines[name] for name in names if name in proof.lines), "")
    named = (mention(call.segment, call.args, call.kwargs, name) for name in names)
    return written or next(filter(None, named), "") or begins(call.segment)


def _twice(call, proof: Proof, told: list[Item]) -> list[Cause]:
    """What the recomputation wrote once more, and is not told already."""
    named = {name for item in told for name in item.names}
    written = {
        name: kind
        for name, kind in _lasting(call.again).items()
        if name not in named and (name in proof.written or proof.matters is None)
    }
    found = []
    for item in items_of(written):
        names = sorted(item.names)
        told, repair = words.written_twice(item.group, names)
        found.append(Cause(item.label, _where(call, proof, names), True, told, repair, item.group[0]))
    if call.recomputed > 1 and found:
        name = f"recomputed {call.recomputed} times, for {call.recomputed} backward passes"
        told = f"each backward through the graph runs the segment again, and writes {found[0].name} again."
        repair = "one backward per forward (of the sum of the losses), or keep the writes out of the segment."
        found.insert(0, Cause(name, begins(call.segment), True, told, repair))
    return found


def _lasting(kinds: dict[str, str]) -> dict[str, str]:
    """Without random streams: that one has moved on is no harm in itself."""
    return {name: kind for name, kind in kinds.items() if kind != "random stream"}


def _late(call, proof: Proof, causes: list[Cause]) -> list[Judged]:
    """What the forward writes after its last saved tensor: early stop does not come there, reentrant does."""
    written = _lasting({n: k for n, k in proof.rewritten.items() if n in proof.written and n not in call.again})
    found = []
    for item in items_of(written):
        names = sorted(item.names)
        if item.label not in {cause.name for cause in causes}:
            _, repair = words.written_twice(item.group, names)
            told = (
                f"written after the last saved tensor, before which early stop ends; not reentrant: {words.few(names)}."
            )
            cause = Cause(item.label, _where(call, proof, names), True, told, repair, item.group[0], ("reentrant",))
            found.append((SIDE_EFFECT, cause))
    return found


def _left_open(call, proof: Proof) -> list[Cause]:
    """What a whole forward puts back at its end, to which early stop does not come.

    Not what a weak dictionary holds for as long as the forward runs: that goes by itself.
    """
    if proof.matters is None or call.recomputation.ended != "stopped early":
        return []
    written = proof.written.keys() | proof.written_there.keys()
    left = {name: kind for name, kind in _lasting(call.again).items() if name not in written and kind != WEAK}
    found = []
    for item in items_of(left):
        told = "the forward puts it back before it ends; early stop leaves the segment earlier, with it changed."
        repair = "put it back in `finally`; or set_checkpoint_early_stop(False)."
        where = _where(call, proof, sorted(item.names))
        found.append(Cause(f"{item.label}, left by early stop", where, True, told, repair, "protocol", _NON_REENTRANT))
    return found


def _collected(call, proof: Proof) -> list[Judged]:
    """Tensors with a history that the forward leaves somewhere, and that are made use of: under reentrant they have
    none.
    """
    used = {n for n, inside in proof.graphs.items() if call.uses.get(n, math.inf) > inside}
    kept = sorted(used | proof.built_on)
    if not kept:
        return []
    told = "reentrant runs the forward without a graph: a loss made of what is collected here reaches no parameter."
    repair = "return it from the segment, or use_reentrant=False."
    name = f"collected on the side: {words.few(kept)}"
    return [(SILENT, Cause(name, _where(call, proof, kept), False, told, repair, "state", ("reentrant",)))]


def _protocol(call) -> list[Judged]:
    """What breaks the agreement between autograd, the saved-tensor hooks and the segment."""
    found: list[Judged] = []

    def add(verdict: str, name: str, where: str, proven: bool, told: str, repair: str) -> None:
        found.append((verdict, Cause(name, where, proven, told, repair, "protocol", _NON_REENTRANT)))

    if call.stop_swallowed:
        add(
            LOUD if call.raised else SIDE_EFFECT,
            "early stop swallowed by a broad except",
            _handler(call),
            True,
            "early stop leaves the segment by an exception, and an `except Exception` in it has caught it.",
            "catch the errors you mean, by name; or set_checkpoint_early_stop(False).",
        )
    if call.unpacked_twice:
        add(
            LOUD,
            "saved_tensors unpacked twice",
            "",
            True,
            "a backward reads ctx.saved_tensors twice: each recomputed tensor is handed out once.",
            "read ctx.saved_tensors once, into variables.",
        )
    if changed := call.hints.overwritten:
        add(
            SILENT,
            f"{words.few(changed)} instead of save_for_backward",
            "",
            False,
            "an attribute of ctx is not recomputed: backward reads the memory as its last writer has left it.",
            "ctx.save_for_backward(tensor).",
        )
    if call.casts_again > 0:
        add(
            REPLAYABLE,
            f"autocast weight cache: {call.casts_again} more casts in the recomputation",
            begins(call.segment),
            True,
            "in the forward a weight's copy came from autocast's cache; the recomputation casts it anew. Gradients "
            "are right; selective checkpointing, which compares operators, raises.",
            "autocast(..., cache_enabled=False), or one autocast block per segment.",
        )
    return found


def _handler(call) -> str:
    """Where a function of the segment's catches `Exception`."""
    for code in codes_of(call.segment, call.args, call.kwargs):
        if code.co_exceptiontable and {"Exception", "BaseException"} & set(code.co_names):
            return place(code, code.co_firstlineno)
    return begins(call.segment)


def _unexplained(call, proof: Proof, parted: tuple[int, str] | None) -> Cause:
    """The passes part, and no state that can be put back accounts for it: name the first place."""
    repair = "make the decision unconditional (the identity where it would not bite), or its value reproducible."
    told = "nothing that can be put back accounts for it."
    if proof.kernels:
        told = "two runs from one state differ, and no longer do with deterministic kernels: a race between threads."
        repair += " torch.use_deterministic_algorithms(True) ends the race."
    elif not proof.repeatable:
        told = "two runs from one state differ: a kernel that is not deterministic, or state that cannot be reached."
    if flip := flipped_read(call.forward, call.recomputation):
        first, second = flip
        name = f"{first.operator}() reads {_value(first.value)}, then {_value(second.value)}"
        return Cause(name, first.where, proof.kernels, f"it decides what comes next; {told}", repair, "order")
    if parted:
        number, what = parted
        where = call.forward.where(number) or call.recomputation.where(number)
        return Cause(what, where, proof.kernels, f"here the passes part; {told}", repair, "order")
    if call.saved.differs:
        number = call.saved.operators[call.saved.differs[0]]
        name = f"another value at `{call.forward.code(number)}`" if call.forward.code(number) else "another value"
        told = f"{call.forward.name(number)} saves another value than in the forward; {told}"
        return Cause(name, call.forward.where(number) or begins(call.segment), proof.kernels, told, repair, "order")
    if not proof.repeatable:
        name = "a kernel that is not deterministic" if proof.kernels else "the segment does not repeat itself"
        return Cause(name, begins(call.segment), proof.kernels, told, repair, "order")
    told = f"{_raised(call) or 'the outputs differ'}; {told}"
    return Cause(
        "not found", begins(call.segment), False, told, "cut the segment in halves to find the place.", "order"
    )


def _value(value) -> str:
    text = f"{value:.9g}" if isinstance(value, float) else repr(value)
    return text if len(text) <= 24 else text[:21] + "..."


def _raised(call) -> str:
    if not call.raised:
        return ""
    kind = Mismatch.of(RuntimeError(call.raised))
    return str(kind) if kind.kind != "other" else textwrap.shorten(call.raised, 90, placeholder=" ...")


def _effect(call, proof: Proof, parted: tuple[int, str] | None) -> list[str]:
    said = [_raised(call)] if call.raised else []
    if parted:
        number, what = parted
        where = call.forward.where(number) or call.recomputation.where(number)
        said.append(f"operator {number + 1} of {len(call.forward.operators)}: {what}{' at ' + where if where else ''}")
    if proof.matters and proof.off:
        said.append(f"the recomputation's output is off by {proof.off:.1e} of its size")
    return said


def _notes(call, proof: Proof) -> list[str]:
    said = [proof.unfinished] if proof.unfinished else []
    if not proof.repeatable and not proof.matters:
        race = ", a race that deterministic kernels end" if proof.kernels else ""
        said.append(f"two runs from one state agree up to rounding only{race}")
    if call.hints.other_thread:
        said.append("the recomputation ran in another thread: thread-local state is lost there")
    if call.hints.on_ctx:
        said.append(f"never freed, not recomputed: {words.few(call.hints.on_ctx)} (use ctx.save_for_backward)")
    return said
