"""Why do two runs of an evaluation disagree, and where first? Found by further runs, all from the first one's start."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from recompute_lab.instruments.agreement import Agreement, Reason
from recompute_lab.instruments.calls import Call
from recompute_lab.instruments.isolation import tensors_in
from recompute_lab.instruments.narrowing import Log, first_parting, first_row, unseeded
from recompute_lab.instruments.results import compared
from recompute_lab.instruments.witness.locate import first_writes

_MOST_TRIED = 12


def narrow(result: Agreement, call: Call, switch: Callable[[], None], samples: Sequence | int | None) -> None:
    """Find the first sample, the first operator, and what the runs found otherwise, by further runs."""
    for metric in result.differing:
        if metric.is_time:
            told, repair = "a time, which no two runs share", "leave it out of what is compared"
            result.reasons.append(Reason("time", metric.name, told, True, moves=(metric.name,), repair=repair))
    if len(result.reasons) == len(result.differing):
        return
    call.start.restore()
    first, log = call.logged(switch)
    for _ in range(result.run - 2):
        call.run(switch)
    groups, after = call.changed_groups(), call.snapshot()
    second, other = call.logged(switch)
    if _moved(first, second):
        result.parting = first_parting(log, other)
        result.first_sample = _first_sample(result, log, other, call, samples)

    call.start.restore()
    free = _moved(first, call.run(switch))
    if free:
        result.reasons += _not_to_be_put_back(call, free)
    if set(free).issuperset(_moved(first, second)):
        if not free:
            result.reasons.append(Reason("not found", "nothing that can be reached", _AGAIN))
        return
    tried = []
    for group, names in list(groups.items())[:_MOST_TRIED]:
        after.restore()
        call.start.restore(keep=names)
        tried.append((group, names, tuple(m for m in _moved(first, call.run(switch)) if m not in free)))
    # Where it takes two things together, none alone is proven.
    told = [one for one in tried if one[-1]] or tried
    call.start.restore()
    lines = first_writes(lambda: call.run(switch), call.start.held.fingerprints([n for one in told for n in one[1]]))
    for group, names, moved in told:
        where = next((lines[name] for name in names if name in lines), "")
        said, repair = _told(group)
        result.reasons.append(Reason(group[0], call.called(group, names), said, bool(moved), where, moved, repair))


_AGAIN = "from one state the runs agree: what differs is kept where it is not looked for, or came of a race"


def _moved(a: dict[str, object], b: dict[str, object]) -> tuple[str, ...]:
    """Which entries differ; times do not count."""
    return tuple(metric.name for metric in compared(a, b) if not metric.agrees and not metric.is_time)


def _told(group: tuple) -> tuple[str, str]:
    """What happens, and the repair."""
    if group[0] == "random stream":
        return "no run seeds it", "seed it inside the evaluation, or draw from torch's default stream"
    return "the next run reads it", "begin each evaluation with its own, or put it back at the end"


def _not_to_be_put_back(call: Call, moved: tuple[str, ...]) -> list[Reason]:
    """Runs from one state differ: what the code names that nobody can put back."""
    found = [
        Reason(_FREE, name, "nobody can put it back", where=where, moves=moved, repair=_repair(name))
        for name, where in unseeded(call.evaluation, call.args, call.kwargs)
    ]
    alone = "also runs that begin alike differ: it is out of reach, or a race that obeys no switch"
    return found or [Reason(_FREE, "not found", alone, moves=moved)]


_FREE = "not to be put back"


def _repair(name: str) -> str:
    if name.startswith("a clock"):
        return "leave it out of what is compared"
    if name.startswith("a file"):
        return "read it once, before, and hand over what it holds"
    return "sort it, or seed it"


def _first_sample(result: Agreement, log: Log, other: Log, call: Call, samples) -> int | str | None:
    """By the result's rows of values, one for each sample; else by the rows that the model returned."""
    rows = sum(map(len, log.outputs))
    if samples is not None:
        counts = {samples if isinstance(samples, int) else len(samples)}
    else:
        counts = {rows} | {len(t) for t in tensors_in([call.args, call.kwargs]) if t.dim() and len(t) > 1}
    found = [m.sample for m in result.differing if m.sample is not None and m.length in counts]
    # The model may have seen each sample more than once.
    whole = [count for count in counts if count and rows % count == 0]
    whole = [count for count in whole if count < rows] or whole
    row = first_row(log, other) if whole else None
    number = min(found) if found else None if row is None else row % max(whole)
    if samples is None or isinstance(samples, int) or number is None:
        return number
    return samples[number] if number < len(samples) else number
