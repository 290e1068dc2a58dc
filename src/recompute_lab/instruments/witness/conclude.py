"""From what was seen of a call to a report: verdicts, causes in their order, repairs."""

from __future__ import annotations

import re

from recompute_lab.instruments.checkpointing import Mismatch
from recompute_lab.instruments.state import Snapshot
from recompute_lab.instruments.witness import reentrant
from recompute_lab.instruments.witness.locate import begins, mention
from recompute_lab.instruments.witness.proof import Item, Proof
from recompute_lab.instruments.witness.report import LOUD, REPLAYABLE, SIDE_EFFECT, SILENT, Cause, Report, severity
from recompute_lab.instruments.witness.trace import Trace

_STREAMS = {
    "torch": "torch RNG",
    "CUDA": "torch RNG (CUDA)",
    "Python": "python random stream (random.*)",
    "NumPy": "numpy random stream (numpy.random.*)",
}
_POWER_ITERATION = ("_u", "_v", "weight_u", "weight_v")
_STATISTICS = ("running_mean", "running_var", "num_batches_tracked")


def differences(before: Snapshot) -> dict[str, str]:
    """What is otherwise than it was, by name, with its kind."""
    found = before.changed_kinds()
    found |= {name: "random stream" for name in before.moved_streams()}
    found |= {name: "switch" for name in before.moved_switches()}
    return found | {name: "context variable" for name in before.moved_context()}


def is_torchs_stream(name: str) -> bool:
    return name in ("torch", "CUDA")


def items_of(call) -> list[Item]:
    """What differed, with what belongs together taken together: all parameters, all flags, one layer's statistics."""
    groups: dict[tuple, list[str]] = {}
    for name, kind in call.differs.items():
        owner, _, last = name.rpartition(".")
        if last == "training":
            key = ("training",)
        elif kind == "parameter":
            key = ("parameter",)
        elif kind == "buffer" and last in _STATISTICS:
            key = ("buffer", owner)
        elif kind == "buffer" and last in _POWER_ITERATION:
            key = ("power iteration", owner)
        else:
            key = (kind, name)
        groups.setdefault(key, []).append(name)
    return [Item(_label(key, names), frozenset(names), _kind(key)) for key, names in groups.items()]


def _kind(key: tuple) -> str:
    return "training" if key[0] == "training" else key[0]


def _label(key: tuple, names: list[str]) -> str:
    if key[0] == "training":
        return f"training flag, as eval() sets it ({_few(names)})"
    if key[0] == "parameter":
        return f"parameters changed in place (weight: {_few(names)})"
    if key[0] == "power iteration":
        return f"spectral norm's power iteration ({_few(names)})"
    if key[0] == "buffer" and len(key) > 1 and names[0].rpartition(".")[2] in _STATISTICS:
        return f"BatchNorm statistics ({_few(names)})"
    return _said(key[0], names[0])


def _said(kind: str, name: str) -> str:
    if kind == "random stream":
        return _STREAMS.get(name, f"random stream {name} (Generator)")
    return name


def _few(names: list[str]) -> str:
    names = sorted(names)
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def mismatch(call) -> tuple[int, str] | None:
    """The first place at which the passes part, as far as the recomputation went: (operator, what differs)."""
    first, second = call.forward, call.recomputation
    for number, (a, b) in enumerate(zip(first.operators, second.operators, strict=False)):
        if a[0] != b[0]:
            return number, f"{a[0]} in forward, {b[0]} in recomputation"
        if a[1] != b[1]:
            return number, f"{a[0]} gives another shape or dtype"
    before = {number: digest for number, digest in first.index_values()}
    for number, digest in second.index_values():
        if number in before and before[number] != digest:
            return number, f"{first.name(number)} gives other whole numbers (a route, a mask)"
    longer = len(second.operators) > len(first.operators)
    if longer or (second.ended == "returned" and len(second.operators) < len(first.operators)):
        number = min(len(first.operators), len(second.operators))
        return number, f"{len(first.operators)} operators in forward, {len(second.operators)} in recomputation"
    return None


def flipped_read(first: Trace, second: Trace):
    """The first value that Python read otherwise in the recomputation."""
    for a, b in zip(first.reads, second.reads, strict=False):
        if (a.operator, a.where) != (b.operator, b.where):
            return None
        if repr(a.value) != repr(b.value):
            return a, b
    return None


def is_suspicious(call) -> bool:
    return bool(
        call.differs or call.again or call.raised or mismatch(call) or flipped_read(call.forward, call.recomputation)
    )


def report_of(call) -> Report:
    """The report of a watched call; its verdict for the reentrant implementation is what that would do."""
    proof = call.proof or Proof()
    causes: list[tuple[str, Cause]] = []
    broken = call.raised or mismatch(call) is not None or proof.matters
    verdict = LOUD if call.raised else SILENT if broken else REPLAYABLE
    causes += _protocol(call)
    causes += [(verdict, cause) for cause in _state_causes(call, proof)] if broken else []
    if broken and not causes:
        causes += [(verdict, _unexplained(call, proof))]
    doubled = _twice(call, proof, {name for item in proof.causes for name in item.names})
    causes += [(SIDE_EFFECT, cause) for cause in doubled]
    non_reentrant = max([verdict, *(v for v, _ in causes)], key=severity, default=REPLAYABLE)
    if call.raised:
        non_reentrant = LOUD
    only = reentrant.causes(call.hints) + _collected(call, proof)
    both = SILENT if broken and (proof.matters or mismatch(call)) else REPLAYABLE
    if not broken or both == REPLAYABLE:
        both = SIDE_EFFECT if doubled else REPLAYABLE
    would = max([both, *(v for v, _ in only)], key=severity)
    report = Report(call.label, reentrant=would, non_reentrant=non_reentrant)
    report.causes = [cause for _, cause in causes + only]
    report.effect = _effect(call, proof)
    report.notes = _notes(call, proof)
    drawn = {n for n, k in (call.differs | call.again).items() if k == "random stream" and not is_torchs_stream(n)}
    report.drawn = sorted(drawn)
    return report


def _state_causes(call, proof: Proof) -> list[Cause]:
    if proof.proven:
        return [_cause(call, proof, item, True) for item in proof.causes]
    if proof.matters is None and not call.differs:
        return []
    return [_cause(call, proof, item, False) for item in items_of(call)] if proof.matters is None else []


def _cause(call, proof: Proof, item: Item, proven: bool) -> Cause:
    names = sorted(item.names)
    where = next((proof.lines[n] for n in names if n in proof.lines), "")
    where = where or next((w for n in names if (w := mention(call.segment, call.args, call.kwargs, n))), "")
    own = any(name in proof.written for name in names)
    told, repair = _words(item, own, call)
    return Cause(item.label, where or begins(call.segment), proven, told, repair, item.kind)


def _words(item: Item, own: bool, call) -> tuple[str, str]:
    name = item.label
    if item.kind == "random stream":
        if is_torchs_stream(next(iter(item.names))):
            return (
                "the recomputation draws other random numbers than the forward: torch's stream is not replayed.",
                "leave preserve_rng_state=True, its default.",
            )
        return (
            "the recomputation draws on from this stream, which nobody rewinds: other numbers than in the forward.",
            "draw from torch's default generator, which is replayed, or rewind this one (context_fn).",
        )
    if item.kind == "training":
        return (
            "train() or eval() was called between the forward and its backward.",
            "switch modes after backward.",
        )
    if item.kind == "parameter":
        return (
            "the weights changed between the forward and its recomputation, which reads them as they are then.",
            "run backward before anything writes to the weights.",
        )
    if item.kind == "switch":
        return f"{name} was switched between the passes.", f"keep {name} as it is until backward is done."
    if item.kind == "context variable":
        return "a context variable has another value in backward.", "pass its value to the segment as an argument."
    if item.kind == "variable" and not own:
        return (
            f"the closure looks {name} up when it runs: by then it stands for something else.",
            f"bind it when the segment is made: lambda x, {name.rpartition('.')[2]}={name.rpartition('.')[2]}: ...",
        )
    if own:
        return (
            f"the forward writes {name} and reads it: the recomputation finds it changed and computes something else.",
            "rewind it for the recomputation (repairs.replay.state_replayed), or keep it out of the segment.",
        )
    return (
        f"{name} was changed between the forward and its recomputation, which reads it.",
        "leave it alone until backward is done, or pass it to the segment as an argument.",
    )


def _twice(call, proof: Proof, named: set[str]) -> list[Cause]:
    """What the recomputation wrote once more."""
    written = {n: k for n, k in call.again.items() if n in proof.written or proof.matters is None}
    groups: dict[str, list[str]] = {}
    for name, kind in written.items():
        if name in named or kind == "random stream":
            continue
        owner, _, last = name.rpartition(".")
        groups.setdefault(owner if last in _STATISTICS else name, []).append(name)
    found = []
    for label, names in groups.items():
        statistics = names[0].rpartition(".")[2] in _STATISTICS
        said = f"BatchNorm statistics ({_few(names)})" if statistics else label
        where = next((proof.lines[n] for n in names if n in proof.lines), "")
        where = where or mention(call.segment, call.args, call.kwargs, names[0]) or begins(call.segment)
        repair = (
            "spare the buffers in the recomputation (repairs.suppress.buffers_spared), or move it outside the segment."
            if statistics or written[names[0]] == "buffer"
            else "write it outside the segment, or only `if not recomputing()` (repairs.recomputation)."
        )
        found.append(
            Cause(
                said,
                where,
                call.proof is not None,
                f"written by the forward, and again by the recomputation: {said}.",
                repair,
            )
        )
    if call.recomputed > 1 and found:
        names = ", ".join(c.name for c in found[:3])
        found.insert(
            0,
            Cause(
                f"recomputed {call.recomputed} times, for {call.recomputed} backward passes",
                begins(call.segment),
                True,
                f"each backward through the graph runs the segment again, and each run writes {names}.",
                "one backward per forward (sum the losses), or keep the writes out of the segment.",
            ),
        )
    return found


def _collected(call, proof: Proof) -> list[tuple[str, Cause]]:
    """Tensors with a history that the forward leaves somewhere: under reentrant they have none."""
    kept = sorted(n for n in proof.graphs if n in call.differs or n in proof.written)
    if not kept:
        return []
    where = proof.lines.get(kept[0]) or mention(call.segment, call.args, call.kwargs, kept[0])
    told = "reentrant runs the forward without a graph: a loss made of what is collected here reaches no parameter."
    repair = "return it from the segment, or use_reentrant=False."
    return [
        (SILENT, Cause(f"collected on the side: {_few(kept)}", where, False, told, repair, "state", ("reentrant",)))
    ]


def _protocol(call) -> list[tuple[str, Cause]]:
    found = []
    if call.stop_swallowed:
        told = "early stop leaves the segment by an exception; an `except Exception` around it has caught it."
        repair = "catch the errors you mean, by name; or early_stop=False."
        name = "early stop swallowed by a broad except"
        found.append(
            (
                LOUD if call.raised else SIDE_EFFECT,
                Cause(name, _handler(call), True, told, repair, "protocol", ("non-reentrant",)),
            )
        )
    if call.unpacked_twice:
        told = "a backward reads ctx.saved_tensors twice: non-reentrant hands each recomputed tensor out once."
        repair = "read ctx.saved_tensors once, into variables."
        found.append(
            (LOUD, Cause("saved_tensors unpacked twice", "", True, told, repair, "protocol", ("non-reentrant",)))
        )
    overwritten = _overwritten(call)
    if overwritten:
        told = "an attribute of ctx is not recomputed: backward reads the memory as whoever wrote it last has left it."
        repair = "ctx.save_for_backward(tensor)."
        name = f"{_few(overwritten)} instead of save_for_backward"
        found.append((SILENT, Cause(name, "", False, told, repair, "protocol", ("non-reentrant",))))
    return found


def _overwritten(call) -> list[str]:
    """Tensors kept on ctx whose memory is that of a reachable tensor which has been written to since."""
    memory = {t.untyped_storage().data_ptr() for n, t in call.before.tensors.items() if n in call.differs | call.again}
    return [name for name, pointer in call.hints.on_ctx.items() if pointer in memory]


def _handler(call) -> str:
    from recompute_lab.instruments.witness.locate import codes_of
    from recompute_lab.instruments.witness.trace import place

    for code in codes_of(call.segment, call.args, call.kwargs):
        if code.co_exceptiontable and "Exception" in code.co_names:
            return place(code, code.co_firstlineno)
    return begins(call.segment)


def _unexplained(call, proof: Proof) -> Cause:
    """The passes part, and no state accounts for it: name the first place."""
    flip = flipped_read(call.forward, call.recomputation)
    parted = mismatch(call)
    if flip:
        first, second = flip
        return Cause(
            f"{first.operator}() reads {_value(first.value)}, then {_value(second.value)}",
            first.where,
            False,
            "Python reads a tensor's value here, and what it reads decides what comes next; nothing else was found to differ.",
            "make the decision unconditional (multiply by 1 where it would not bite), or the value reproducible.",
            "order",
        )
    if parted:
        number, what = parted
        return Cause(
            f"{what}",
            call.forward.where(number) or call.recomputation.where(number),
            False,
            "here the passes part; no state that can be put back accounts for it"
            + ("" if proof.repeatable else ": two runs from one state differ")
            + ".",
            "use deterministic kernels (torch.use_deterministic_algorithms), or let no value decide the route.",
            "order",
        )
    if not proof.repeatable:
        return Cause(
            "the segment does not repeat itself", begins(call.segment), False,
            "two runs from one and the same state differ: a kernel that is not deterministic, or state that cannot be reached.",
            "use deterministic kernels (torch.use_deterministic_algorithms), and look for what hides state.", "order",
        )  # fmt: skip
    said = Mismatch.of(RuntimeError(call.raised)) if call.raised else None
    return Cause(
        "something that cannot be seen from Python", begins(call.segment), False,
        f"the passes differ ({said or 'in what they return'}), and putting back all that can be reached does not mend it.",
        "cut the segment in halves to find the place.", "order",
    )  # fmt: skip


def _value(value) -> str:
    text = f"{value:.9g}" if isinstance(value, float) else repr(value)
    return text if len(text) <= 24 else text[:21] + "..."


def _effect(call, proof: Proof) -> list[str]:
    said = []
    if call.raised:
        kind = Mismatch.of(RuntimeError(call.raised))
        said.append(str(kind) if kind.kind != "other" else re.sub(r"\s+", " ", call.raised)[:80])
    if parted := mismatch(call):
        number, what = parted
        where = call.forward.where(number) or call.recomputation.where(number)
        said.append(f"operator {number + 1} of {len(call.forward.operators)}: {what}{' at ' + where if where else ''}")
    if proof.matters and proof.off:
        said.append(f"the recomputation's output is off by {proof.off:.1e} of its size")
    return said


def _notes(call, proof: Proof) -> list[str]:
    said = []
    if proof.unfinished:
        said.append(proof.unfinished)
    if call.hints.on_ctx:
        said.append(f"never freed, not recomputed: {_few(list(call.hints.on_ctx))} (use ctx.save_for_backward)")
    if call.hints.other_thread:
        said.append("the recomputation ran in another thread: thread-local state is lost there")
    return said


__all__ = ["differences", "is_suspicious", "items_of", "mismatch", "report_of"]
