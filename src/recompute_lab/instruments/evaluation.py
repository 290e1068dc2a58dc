"""Does an evaluation agree with itself? Run it twice, with the same weights and inputs, and compare every bit."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection, Iterator, Sequence

import torch
from torch import nn

from recompute_lab.instruments.agreement import Agreement, Reason
from recompute_lab.instruments.determinism import switched, without_implementation
from recompute_lab.instruments.isolation import tensors_in
from recompute_lab.instruments.narrowing import Log, first_parting, first_row, logged, unseeded
from recompute_lab.instruments.results import compared, entries
from recompute_lab.instruments.state import Snapshot, same_bits
from recompute_lab.instruments.streams import process_streams
from recompute_lab.instruments.witness.locate import first_writes
from recompute_lab.instruments.witness.words import group_of, label

_MOST_BYTES = 4 << 30  # of what can be reached: beyond that, a change is seen, but not put back
_MOST_TRIED = 12
_OWN = ("model", "samples", "deterministic", "times")


def run_twice(
    evaluation: Callable,
    *args,
    model: nn.Module | None = None,
    samples: Sequence | int | None = None,
    deterministic: bool = True,
    times: int = 2,
    **kwargs,
) -> Agreement:
    """Run `evaluation(*args, **kwargs)` `times` times and demand the same result, bit for bit.

    The evaluation returns a number, a tensor, an array, a string, or a dict, list, tuple or dataclass of such: metrics,
    values per sample. Each run begins with the same global random streams (torch's, NumPy's, Python's), under
    `torch.use_deterministic_algorithms(True)`. Nothing else is put back between the runs, as nothing is when somebody
    evaluates again: generators of one's own draw on, and what a run leaves behind is there for the next one. After
    the last run all that can be reached is put back.

    A disagreement is narrowed down by further runs, from the state of the beginning. `model`, by default the first
    module among the arguments, is watched for the first row of its outputs that differs. `samples` is the number of
    samples, or their names in order: then a row of that length alone counts as one value per sample. What the
    evaluation raises passes through. Raises RuntimeError for an operator that torch cannot compute deterministically,
    TypeError for what is no evaluation or returns nothing that can be compared, ValueError for fewer than two runs.
    With arguments of the names above, give a `functools.partial`.
    """
    _must_fit(evaluation, args, kwargs, times)
    watched = model if model is not None else _module_in(evaluation, *args, *kwargs.values())
    if torch.cuda.is_available():
        torch.cuda.init()  # else its streams would begin with the first run, and could not be taken back
    call = _Call(evaluation, args, kwargs, watched)
    try:
        with switched(deterministic) as switch:
            result = call.check(switch, times, deterministic)
            left, lost = call.left()
            if deterministic and not result.agrees:
                _narrow(result, call, switch, samples)
        if deterministic:
            call.start.restore()
            with switched(False) as switch:
                result.without_switch = call.check(switch, times, False)
    finally:
        call.start.restore()
    result.left, result.lost = left, lost
    return result


class _Call:
    """An evaluation with its arguments, and the state in which it is met."""

    def __init__(self, evaluation: Callable, args: tuple, kwargs: dict, model: nn.Module | None):
        self.evaluation, self.args, self.kwargs, self.model = evaluation, args, kwargs, model
        self.start = self.snapshot()
        self.streams = [(stream, stream.read()) for stream in process_streams()]
        self.skipped: dict[str, str] = {}

    def snapshot(self) -> _World:
        return _World(Snapshot.within(_MOST_BYTES, self.evaluation, self.args, {"model": self.model} | self.kwargs))

    def run(self, switch: Callable[[], None]) -> dict[str, object]:
        """The entries of one run's result; global streams at the start."""
        for stream, state in self.streams:
            stream.write(state)
        switch()
        try:
            result, self.skipped = entries(self.evaluation(*self.args, **self.kwargs))
        except RuntimeError as error:
            if operator := without_implementation(error):
                raise RuntimeError(
                    f"torch has no deterministic implementation of {operator}, so the check cannot be made: compute "
                    "it in another way, or ask for deterministic=False, under which a disagreement says little"
                ) from error
            raise
        return result

    def logged(self, switch: Callable[[], None]) -> tuple[dict[str, object], Log]:
        with logged(self.model) as log:
            return self.run(switch), log

    def check(self, switch: Callable[[], None], times: int, deterministic: bool) -> Agreement:
        """The runs, one after the other, from the state as it is."""
        first, number = self.run(switch), 1
        while number < times:
            number += 1
            metrics = compared(first, self.run(switch))
            if not all(metric.agrees for metric in metrics):
                break
        return Agreement(
            {metric.name: metric for metric in metrics},
            deterministic,
            times,
            number,
            skipped=self.skipped,
            threads=torch.get_num_threads(),
            cuda=any(tensor.is_cuda for tensor in self.start.held.tensors.values()),
        )

    def changed_groups(self) -> dict[tuple, list[str]]:
        """What is not as it was at the start, by group (see `words.group_of`); the global streams, which are put back
        before each run, left out.
        """
        groups: dict[tuple, list[str]] = {}
        for name, kind in self.start.changed({stream.name for stream, _ in self.streams}).items():
            groups.setdefault(group_of(name, kind), []).append(name)
        return groups

    def left(self) -> tuple[list[str], list[str]]:
        """What a run has left behind, and what of it is too large to be put back."""
        left, lost = [], []
        for group, names in self.changed_groups().items():
            (lost if self.start.held.digested.intersection(names) else left).append(self.called(group, names))
        return sorted(left), sorted(lost)

    def called(self, group: tuple, names: list[str]) -> str:
        """What a group is called; an argument by its parameter's name."""
        told = f"generator {group[1]}" if group[0] == "random stream" else label(group, names)
        try:
            bound = inspect.signature(self.evaluation).bind(*self.args, **self.kwargs)
        except (TypeError, ValueError):
            return told
        for i, parameter in enumerate(list(bound.arguments)[: len(self.args)]):
            told = told.replace(f"args[{i}]", parameter)
        return re.sub(r"kwargs\['(\w+)'\]", r"\1", told)


class _World:
    """A `Snapshot`, `held`, and the values of the gradients that were there: a backward adds to them."""

    def __init__(self, held: Snapshot):
        self.held = held
        gradients = {name: (tensor, tensor.grad) for name, tensor in held.parameters().items()}
        self.gradients = {
            f"{name}.grad": (tensor, grad, None if grad is None else grad.detach().clone())
            for name, (tensor, grad) in gradients.items()
        }

    def restore(self, keep: Collection[str] = ()) -> None:
        """Put everything back but what `keep` names."""
        kept = {name: tensor.grad for name, (tensor, _, _) in self.gradients.items() if name in keep}
        self.held.restore(keep)
        for name, (tensor, grad, copy) in self.gradients.items():
            if name in keep:
                tensor.grad = kept[name]
            elif grad is not None and not same_bits(grad, copy):
                grad.data.copy_(copy)

    def changed(self, streams: Collection[str]) -> dict[str, str]:
        """What differs by name, with its kind; `streams` are those that do not count."""
        changed = self.held.changed_kinds()
        changed |= {name: "switch" for name in self.held.moved_switches() if name != "determinism"}
        changed |= {name: "random stream" for name in self.held.moved_streams() if name not in streams}
        for name, (tensor, grad, copy) in self.gradients.items():
            if tensor.grad is not grad or grad is not None and not same_bits(grad, copy):
                changed[name] = "gradient"
        return changed


def _must_fit(evaluation: Callable, args: tuple, kwargs: dict, times: int) -> None:
    """Raises the error that says what cannot be checked, and why."""
    if not callable(evaluation):
        raise TypeError(
            f"an evaluation is something to call, twice; got {type(evaluation).__name__}, perhaps its result: "
            "run_twice(evaluate, model), not run_twice(evaluate(model))"
        )
    if isinstance(times, bool) or not isinstance(times, int) or times < 2:
        raise ValueError(f"one run agrees with itself: times is a whole number, 2 or more; got {times!r}")
    named = {**{f"args[{i}]": value for i, value in enumerate(args)}, **kwargs}
    for name, value in named.items():
        if isinstance(value, Iterator):
            raise TypeError(
                f"{name} is an iterator ({type(value).__name__}), which the first run uses up: pass a list, a loader, "
                "or a function that makes one"
            )
    try:
        signature = inspect.signature(evaluation)
    except (TypeError, ValueError):  # a compiled function may have none
        return
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        own = [name for name in _OWN if f"'{name}'" in str(error)]
        hint = f": {own[0]} is run_twice's own; give functools.partial(evaluation, {own[0]}=...)" if own else ""
        raise TypeError(f"the evaluation cannot be called with these arguments: {error}{hint}") from None


def _module_in(*values) -> nn.Module | None:
    return next((value for value in values if isinstance(value, nn.Module)), None)


# --- Where, and why


def _narrow(result: Agreement, call: _Call, switch: Callable[[], None], samples: Sequence | int | None) -> None:
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
    return "the next run reads what this one left", "begin each evaluation with its own, or put it back at the end"


def _not_to_be_put_back(call: _Call, moved: tuple[str, ...]) -> list[Reason]:
    """Runs from one state differ: what the code names that nobody can put back."""
    found = [
        Reason(_FREE, name, "is another in each run", where=where, moves=moved, repair="sort it, or seed it")
        for name, where in unseeded(call.evaluation, call.args, call.kwargs)
    ]
    alone = "also runs that begin alike differ: it is out of reach, or a race that obeys no switch"
    return found or [Reason(_FREE, "not found", alone, moves=moved)]


_FREE = "not to be put back"


def _first_sample(result: Agreement, log: Log, other: Log, call: _Call, samples) -> int | str | None:
    rows = sum(map(len, log.outputs))
    if samples is not None:
        counts = {samples if isinstance(samples, int) else len(samples)}
    else:
        counts = {rows} | {len(t) for t in tensors_in([call.args, call.kwargs]) if t.dim()}
    found = [m.sample for m in result.differing if m.sample is not None and m.length in counts]
    number = min(found) if found else first_row(log, other) if rows in counts else None
    if number is None or samples is None or isinstance(samples, int):
        return number
    return samples[number] if number < len(samples) else number
