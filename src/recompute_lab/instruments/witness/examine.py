"""Try a segment out: plainly, under both implementations, and watched; then say what its recomputation gets wrong."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from recompute_lab.instruments.checkpointing import (
    NO_EARLY_STOP,
    NON_REENTRANT,
    PLAIN,
    Mismatch,
    Strategy,
    passes,
    released,
    weighted_sum,
)
from recompute_lab.instruments.gradients import Divergence, Run, compared, run
from recompute_lab.instruments.isolation import isolated, tensors_in
from recompute_lab.instruments.ledger import align
from recompute_lab.instruments.streams import kept, process_streams, seed_everything
from recompute_lab.instruments.witness.locate import begins, mention
from recompute_lab.instruments.witness.proof import Output
from recompute_lab.instruments.witness.report import (
    LOUD,
    REPLAYABLE,
    SIDE_EFFECT,
    SILENT,
    Cause,
    Report,
    severity,
)
from recompute_lab.instruments.witness.watch import Witness, name_of
from recompute_lab.instruments.witness.words import is_torchs_stream

_TRIES = 6  # where a draw decides, one replay may be right by luck
_MOST_TRIES = 12  # as long as no draw has been seen to do harm
_MOST_RUNS = 8  # of the segment in one backward; a recomputation that starts itself again would never end
_ONLY = {"reentrant": ("reentrant",), "non-reentrant": ("non-reentrant",)}


def examine(
    segment: Callable, *args, between: Callable | None = None, loss: Callable = weighted_sum, **kwargs
) -> Report:
    """Run `segment` plainly and under both implementations, watched, and report what differs and which of it is the
    cause.

    `between(segment, args, output)`, which may take fewer of these, is called between each forward and its backward:
    what a training loop does there. `loss` turns the output into one number. All state that the segment can reach is
    afterwards as it was, also where it raises. What the plain run raises passes through, but for what `between` alone
    made it raise. Raises TypeError where `segment` cannot be called.
    """
    between = _fitted(between)
    # What reentrant warns of, inputs that need no gradient, is told in the report.
    with warnings.catch_warnings(action="ignore"), kept(process_streams()):
        differentiable, draws = _forward_alone(segment, args, kwargs)
        for seed in range(_TRIES if draws else 0):  # the draw may have left out all that needs a gradient
            if not differentiable:
                seed_everything(seed)
                differentiable, _ = _forward_alone(segment, args, kwargs)
        if not differentiable:
            return _without_gradient(segment, args, kwargs)
        plain = _plain(segment, args, kwargs, loss, between)
        witness = Witness()
        watched = replace(NON_REENTRANT, context_fn=witness.context_fn)
        found = {
            "non-reentrant": _tried(watched, plain, segment, args, kwargs, loss, between),
            "reentrant": _tried(BOUNDED_REENTRANT, plain, segment, args, kwargs, loss, between),
        }
        report = _worst(witness.reports, Report(name_of(segment)))
        if draws and found["non-reentrant"].verdict != SILENT:
            report = _again(found, report, segment, args, kwargs, loss, between)
        whole = _tried(NO_EARLY_STOP, plain, segment, args, kwargs, loss, between)
    return _joined(report, found, whole, segment, args, kwargs)


def assert_replayable(
    segment: Callable,
    *args,
    between: Callable | None = None,
    implementations: tuple[str, ...] = ("reentrant", "non-reentrant"),
    **kwargs,
) -> None:
    """For a test suite: fails, with the report as its message, unless `segment` is replayable under each of
    `implementations`.
    """
    report = examine(segment, *args, between=between, **kwargs)
    verdicts = {"reentrant": report.reentrant, "non-reentrant": report.non_reentrant}
    unknown = set(implementations) - set(verdicts)
    if unknown:
        raise ValueError(f"implementations are 'reentrant' and 'non-reentrant'; got {', '.join(map(repr, unknown))}")
    if any(verdicts[name] != REPLAYABLE for name in implementations):
        raise AssertionError(str(report))


@dataclass
class _Tried:
    """`other_output` is True where the forward did not return what the plain run returned."""

    verdict: str
    divergence: Divergence
    other_output: bool = False

    @classmethod
    def of(cls, divergence: Divergence) -> _Tried:
        if divergence.raised is not None:
            return cls(LOUD, divergence)
        if divergence.outcome == "silent":
            return cls(SILENT, divergence)
        return cls(SIDE_EFFECT if divergence.changed else REPLAYABLE, divergence)


def _plain(segment, args, kwargs, loss, between) -> Run:
    try:
        return run(PLAIN, segment, args, kwargs, loss, between)
    except RuntimeError:
        if between is None:
            raise
        # Autograd refuses what `between` did, as it should; checkpointing may not.
        return run(PLAIN, segment, args, kwargs, loss)


def _tried(strategy: Strategy, plain: Run, segment, args, kwargs, loss, between) -> _Tried:
    try:
        other = run(strategy, segment, args, kwargs, loss, between)
    except Exception as error:
        return _Tried.of(Divergence(strategy.name, effects=list(plain.changed), raised=released(error)))
    tried = _Tried.of(compared(plain, other, strategy.name))
    tried.other_output = not _close(plain.output, other.output)
    if tried.verdict in (REPLAYABLE, SIDE_EFFECT) and tried.other_output:
        tried.verdict = SILENT
    return tried


def _close(outputs: list[torch.Tensor], others: list[torch.Tensor]) -> bool:
    """Equal up to rounding."""
    if [t.shape for t in outputs] != [t.shape for t in others]:
        return False
    return all(Output.of(a).is_close(Output.of(b)) for a, b in zip(outputs, others, strict=True))


@dataclass(frozen=True)
class _Bounded(Strategy):
    """The reentrant implementation, in which no segment runs without end."""

    def __call__(self, segment: Callable, *args, **kwargs):
        left = iter(range(_MOST_RUNS))

        def counted(*given, **named):
            if next(left, None) is None:
                raise RecursionError("the recomputation starts itself again: the segment returns a captured tensor")
            return segment(*given, **named)

        return super().__call__(counted, *args, **kwargs)


BOUNDED_REENTRANT = _Bounded("reentrant", use_reentrant=True)


def _worst(reports: list[Report], default: Report) -> Report:
    return max(reports, key=lambda r: max(severity(r.non_reentrant), severity(r.reentrant)), default=default)


def _again(found: dict[str, _Tried], report: Report, segment, args, kwargs, loss, between) -> Report:
    """From other places of the random streams: the worst outcome counts. The report of the run that shows it, else
    `report`.
    """
    by_luck = False
    with kept(process_streams()):
        for seed in range(_MOST_TRIES):
            if seed >= _TRIES and severity(found["non-reentrant"].verdict) > severity(SIDE_EFFECT):
                break
            seed_everything(seed)
            if not _forward_alone(segment, args, kwargs)[0]:  # this draw leaves out all that needs a gradient
                continue
            plain = _plain(segment, args, kwargs, loss, between)
            for name, strategy in (("non-reentrant", NON_REENTRANT), ("reentrant", BOUNDED_REENTRANT)):
                tried, before = _tried(strategy, plain, segment, args, kwargs, loss, between), found[name].verdict
                by_luck |= (tried.verdict == REPLAYABLE) != (before == REPLAYABLE)
                if severity(tried.verdict) > severity(before):
                    found[name] = tried
                    if name == "non-reentrant":  # the same run once more, watched
                        witness = Witness()
                        watched = replace(NON_REENTRANT, context_fn=witness.context_fn)
                        _tried(watched, plain, segment, args, kwargs, loss, between)
                        report = _worst(witness.reports, report)
            if found["non-reentrant"].verdict == SILENT:
                break
    if by_luck:
        report.notes.append("the draws decide whether the passes agree: some replays are right by luck")
    return report


def _joined(report: Report, found: dict[str, _Tried], whole: _Tried, segment, args, kwargs) -> Report:
    report.watched = False
    report.non_reentrant, report.reentrant = found["non-reentrant"].verdict, found["reentrant"].verdict
    if report.non_reentrant == REPLAYABLE and whole.verdict not in (REPLAYABLE, report.non_reentrant):
        report.notes.append(f"with early stop off: {whole.verdict}; early stop leaves out what would show")
    causes = [c for c in report.causes if _stands(c, report)]
    if report.reentrant != REPLAYABLE and not any("reentrant" in c.under for c in causes):
        causes.append(_generic("reentrant", found["reentrant"], segment, args, kwargs))
    if report.non_reentrant != REPLAYABLE and not any("non-reentrant" in c.under for c in causes):
        causes.insert(0, _generic("non-reentrant", found["non-reentrant"], segment, args, kwargs))
    if severity(report.reentrant) > severity(report.non_reentrant):  # the worse verdict's own causes come first
        broken = severity(report.non_reentrant) > severity(SIDE_EFFECT)  # else what both have in common breaks nothing
        causes.sort(key=lambda c: c.under != _ONLY["reentrant"] and not (broken and c.proven and len(c.under) > 1))
    report.causes = causes
    report.effect = _effects(found) + [line for line in report.effect if line.startswith("operator")]
    if report.non_reentrant == LOUD:
        report.strip = _strip(segment, args, kwargs)
    return report


def _stands(cause: Cause, report: Report) -> bool:
    """A cause is kept where an implementation that it concerns was found to be at fault."""
    verdicts = {"reentrant": report.reentrant, "non-reentrant": report.non_reentrant}
    return any(verdicts[name] != REPLAYABLE for name in cause.under)


def _generic(implementation: str, tried: _Tried, segment, args, kwargs) -> Cause:
    """The symptom in a cause's place, where none was found."""
    result, only, where = tried.divergence, _ONLY[implementation], begins(segment)
    if result.raised is not None:
        said = " ".join(str(result.raised).split())
        name = f"{type(result.raised).__name__}: {said.partition('. ')[0]}"[:120]
        return Cause(name, where, True, said[:120], "the message says it.", "order", only)
    if result.missing:
        told = f"{implementation} gives {len(result.missing)} leaves no gradient that have one in the plain run."
        repair = "use_reentrant=False, or pass and return these tensors as arguments and outputs of their own."
        return Cause(f"no gradient for {', '.join(result.missing[:3])}", where, True, told, repair, "order", only)
    if tried.verdict == SIDE_EFFECT:
        name = result.changed[0]
        told = f"otherwise than after the plain run: {', '.join(result.changed[:3])}."
        repair = "keep the write out of the segment, or out of the recomputation."
        return Cause(name, mention(segment, args, kwargs, name) or where, True, told, repair, "state", only)
    if tried.other_output and not _asks_for_grad_mode(segment, args, kwargs):
        told = (
            "its forward gives another output than the plain run's, from the same state as far as that can be put back."
        )
        repair = "look for what changes out of sight (Python's library, a compiled one), or for a race between threads."
        return Cause("something that cannot be put back has changed", where, False, told, repair, "order", only)
    if implementation == "reentrant" and tried.other_output:
        told = (
            "the forward gives another output: it asks whether gradients are recorded, and in reentrant's they are not."
        )
        repair = "use_reentrant=False, or let nothing that is computed depend on torch.is_grad_enabled()."
        return Cause("grad mode (no_grad) decides what is computed", where, True, told, repair, "reentrant", only)
    told = f"off by {result.worst:.1e} of their size, for a reason that was not found."
    repair = "cut the segment in halves to find the place, or use the other implementation."
    return Cause("gradients that are not the plain run's", where, True, told, repair, "order", only)


def _asks_for_grad_mode(segment, args, kwargs) -> bool:
    """Does the forward give another output where no gradients are recorded, and the same where they are?"""
    outputs = []
    for recorded in (True, True, False):
        with isolated(segment, *args, **kwargs) as call, torch.set_grad_enabled(recorded):
            outputs.append([t.detach().clone() for t in tensors_in(segment(*call.args, **call.kwargs))])
    first, again, unrecorded = outputs
    return _close(first, again) and not _close(first, unrecorded)


def _effects(found: dict[str, _Tried]) -> list[str]:
    said = []
    for name, tried in found.items():
        result = tried.divergence
        if result.raised is not None:
            kind = Mismatch.of(result.raised)
            text = str(kind) if kind.kind != "other" else f"raises {type(result.raised).__name__}"
            said.append(f"{name}: {text}")
        elif tried.verdict == SILENT:
            parts = [f"no gradient for {len(result.missing)}: {', '.join(result.missing[:2])}"] * bool(result.missing)
            if result.worst or not result.missing:
                parts.append(f"gradients off by up to {result.worst:.1e} of their size")
            said.append(f"{name}: {'; '.join(parts)}")
        elif tried.verdict == SIDE_EFFECT:
            said.append(f"{name}: gradients right; differs: {', '.join(result.changed[:3])}")
    return said


def _strip(segment, args, kwargs):
    """The saved tensors of both passes, aligned; None where the passes agree this time."""
    try:
        both = passes(segment, *args, **kwargs)
    except Exception:
        return None
    return align(both.forward, both.recomputation) if both.recomputation is not None else None


def _forward_alone(segment, args, kwargs) -> tuple[bool, bool]:
    """Can its output be differentiated? And does it draw from a stream that no implementation replays?"""
    with isolated(segment, *args, **kwargs) as call:
        output = segment(*call.args, **call.kwargs)
        draws = any(not is_torchs_stream(name) for name in call.before.moved_streams())
        return torch.is_grad_enabled() and any(t.requires_grad for t in tensors_in(output)), draws


def _without_gradient(segment, args, kwargs) -> Report:
    why = "its output requires no grad" if torch.is_grad_enabled() else "grad mode is off"
    report = Report(name_of(segment), reentrant=REPLAYABLE, non_reentrant=REPLAYABLE)
    report.notes.append(f"{why}: nothing is saved, and nothing is run again")
    return report


def _fitted(between: Callable | None) -> Callable | None:
    """`between` as a function of (segment, args, output), of which it may take the first few, or none."""
    if between is None:
        return None
    if not callable(between):
        raise TypeError(f"`between` is a function of (segment, args, output); got {type(between).__name__}")
    try:
        parameters = inspect.signature(between).parameters.values()
    except (TypeError, ValueError):
        return lambda *given: between()
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return between
    taken = sum(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and p.default is p.empty for p in parameters)
    return lambda *given: between(*given[:taken])
