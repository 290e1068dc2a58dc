"""Does an evaluation agree with itself? Run it twice, with the same weights and inputs, and compare every bit."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import nn

from recompute_lab.instruments.agreement import Agreement
from recompute_lab.instruments.calls import Call
from recompute_lab.instruments.determinism import switched
from recompute_lab.instruments.reasons import narrow

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
    TypeError for what is no evaluation, returns nothing that can be compared, or is no `model`, `samples` or
    `deterministic`; ValueError for fewer than two runs, or samples fewer than none.
    With arguments of the names above, give a `functools.partial`.
    """
    _must_fit(evaluation, args, kwargs, times)
    _must_be_ours(model, samples, deterministic)
    watched = model if model is not None else _module_in(evaluation, *args, *kwargs.values())
    if torch.cuda.is_available():
        torch.cuda.init()  # else its streams would begin with the first run, and could not be taken back
    call = Call(evaluation, args, kwargs, watched)
    try:
        with switched(deterministic) as switch:
            result = call.check(switch, times, deterministic)
            left, lost = call.left()
            if deterministic and not result.agrees:
                narrow(result, call, switch, samples)
        if deterministic:
            call.start.restore()
            with switched(False) as switch:
                result.without_switch = call.check(switch, times, False)
    finally:
        call.start.restore()
    result.left, result.lost = left, lost
    return result


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


def _must_be_ours(model, samples, deterministic) -> None:
    """Raises the error that says which of `run_twice`'s own arguments is of no use to it."""
    hint = "run_twice's own; an evaluation's argument of that name is given with functools.partial"
    if model is not None and not isinstance(model, nn.Module):
        raise TypeError(f"model is the module to watch; got {type(model).__name__} (this model is {hint})")
    if not isinstance(deterministic, bool):
        raise TypeError(f"deterministic is True or False; got {deterministic!r} (it is {hint})")
    if samples is None:
        return
    if isinstance(samples, bool) or not (isinstance(samples, int) or hasattr(samples, "__getitem__")):
        raise TypeError(f"samples is how many there are, or a list of their names; got {type(samples).__name__}")
    if isinstance(samples, int) and samples < 0:
        raise ValueError(f"samples is how many there are, or a list of their names; got {samples}")


def _module_in(*values) -> nn.Module | None:
    return next((value for value in values if isinstance(value, nn.Module)), None)
