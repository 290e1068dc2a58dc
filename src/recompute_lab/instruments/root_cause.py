"""Which root cause is it? Each is treated, and nothing else; the treatment under which the step is right again tells.

1. the segment is cut off from the graph around it      5. randomness that torch does not replay
2. the forward writes state                             6. the weights are others
3. the recomputation sees another world                 7. another kernel, or another rounding
4. the forward changes its own arguments                8. the agreement on saved tensors is broken

Where both implementations are wrong, 2 to 7 are tried. Where one alone is, less is asked: reentrant alone is wrong
because its forward has no gradients, which changes a value (7) or cuts something off (1); non-reentrant alone, because
of what it saves: another kernel saves something else (7), or else it is the agreement (8).
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field

import torch

from recompute_lab.instruments.gradients import ROUNDING, Run
from recompute_lab.instruments.isolation import tensors_in
from recompute_lab.instruments.state import Snapshot
from recompute_lab.instruments.steps import IMPLEMENTATIONS, Outcome, outcome, outcomes, plainly, stepped
from recompute_lab.instruments.witness.report import LOUD, SILENT

CUT_OFF, STATE, WORLD, ARGUMENTS, RANDOMNESS, WEIGHTS, KERNEL, PROTOCOL = CAUSES = tuple(range(1, 9))
_WRONG = (LOUD, SILENT)
_BOTH = (ARGUMENTS, RANDOMNESS, WEIGHTS, WORLD, STATE, KERNEL)  # tried in this order, where both are wrong


@dataclass
class Finding:
    """`number` is the root cause, None where the step is right, or where no treatment helps; `names` what was put back
    or brought to the surface, as far as it is known by name; `outcomes` what came of the step untreated.
    """

    number: int | None
    names: list[str] = field(default_factory=list)
    outcomes: dict[str, Outcome] = field(default_factory=dict)

    @property
    def wrong(self) -> list[str]:
        return [name for name, found in self.outcomes.items() if found.verdict in _WRONG]


def root_cause(make: Callable, plain: Run | None = None) -> Finding:
    """The root cause of a step's fault, found by treating one after the other. `plain` is the right run, where the
    step itself has none.
    """
    plain = plain or stepped(make, plainly)
    found = Finding(None, outcomes=outcomes(make, plain))
    if found.wrong == ["reentrant"]:
        # Its forward runs without gradients. Where that changes no value, what is lost is the way to the graph.
        off = found.outcomes["reentrant"].loss_off
        number = KERNEL if off is not None and off > ROUNDING else CUT_OFF
        healed, names = treat(make, number, found.wrong, plain)
        found.number, found.names = number, names if healed else []
    elif found.wrong == ["non-reentrant"]:
        healed, found.names = treat(make, KERNEL, found.wrong, plain)
        found.number = KERNEL if healed else PROTOCOL
    for number in _BOTH if len(found.wrong) == 2 else ():
        healed, names = treat(make, number, found.wrong, plain)
        if healed:
            found.number, found.names = number, names
            break
    return found


def treat(make: Callable, number: int, wrong: list[str], plain: Run | None = None) -> tuple[bool, list[str]]:
    """Is the step right under each implementation in `wrong`, once this root cause is treated? And what was put back.

    For PROTOCOL there is no treatment that leaves the implementation as it is: the answer is that of the other one.
    """
    plain, names = plain or stepped(make, plainly), []
    if number == PROTOCOL:
        return outcome(make, IMPLEMENTATIONS["reentrant"], plain).verdict not in _WRONG, names
    healed = [outcome(make, treated(number, name, names), plain).verdict not in _WRONG for name in wrong]
    return bool(healed) and all(healed), list(dict.fromkeys(names))


def treated(number: int, implementation: str, names: list[str]) -> Callable:
    """A `run` that checkpoints with this root cause treated; it adds to `names` what it puts back.

    Raises ValueError for a number that is no root cause, and for PROTOCOL.
    """
    if number not in CAUSES or number == PROTOCOL:
        raise ValueError(f"root causes 1 to 7 have a treatment; got {number!r}")
    checkpoint = IMPLEMENTATIONS[implementation]

    def run(segment: Callable, *args):
        if number == CUT_OFF:
            return _at_the_surface(checkpoint, segment, args, names)
        if number == ARGUMENTS:
            return checkpoint(_with_its_own(segment, args, names), *args)
        return checkpoint(_Rewound(segment, number, names), *args)

    return run


# --- 1: every tensor is an argument or an output of its own


def _at_the_surface(checkpoint: Callable, segment: Callable, args: tuple, names: list[str]):
    tensors = tensors_in(args)
    if not any(t.requires_grad for t in tensors):
        names.append("requires_grad")
    hidden = [i for i, a in enumerate(args) if not isinstance(a, torch.Tensor) and tensors_in(a)]
    names += [name for i in hidden for name in _called(segment, i)]
    outputs: list = []

    def flat(_, *tensors):
        given = iter(tensors)
        output = segment(*_mapped(args, lambda _: next(given)))
        outputs.append(output)
        if dataclasses.is_dataclass(output):
            names.extend(["dataclass", type(output).__name__, *(f.name for f in dataclasses.fields(output))])
        elif isinstance(output, dict):
            names.extend(map(str, output))
        return tuple(tensors_in(output))

    joined = iter(checkpoint(flat, torch.zeros((), requires_grad=True), *tensors))
    return _mapped(outputs[0], lambda _: next(joined))


def _mapped(value, change: Callable):
    """The value with each of its tensors changed, in the order of `tensors_in`."""
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, dict):
        return type(value)((key, _mapped(member, change)) for key, member in value.items())
    if isinstance(value, list | tuple):
        return type(value)(_mapped(member, change) for member in value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        members = {f.name: _mapped(getattr(value, f.name), change) for f in dataclasses.fields(value)}
        return dataclasses.replace(value, **members)
    return value


def _called(segment: Callable, number: int) -> list[str]:
    """What an argument is called: by its place, and in the segment's signature."""
    try:
        parameters = list(inspect.signature(getattr(segment, "forward", segment)).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    several = any(p.kind is p.VAR_POSITIONAL for p in parameters[: number + 1])
    named = [] if several or number >= len(parameters) else [parameters[number].name]
    return [f"args[{number}]", *named]


# --- 4: each pass has arguments of its own


def _with_its_own(segment: Callable, args: tuple, names: list[str]) -> Callable:
    kept = [_Kept(argument) for argument in args]

    def separate(*tensors):
        given = [k.copy(t) for k, t in zip(kept, tensors, strict=True)]
        versions = [k.look(g) for k, g in zip(kept, given, strict=True)]
        output = segment(*given)
        for i, (k, g, before) in enumerate(zip(kept, given, versions, strict=True)):
            if k.look(g) != before:
                names.extend([*_called(segment, i), type(args[i]).__name__])
        return output

    return separate


class _Kept:
    """An argument, of which copies can be had: also of an iterator, which is run to its end for that, once."""

    def __init__(self, argument):
        self._items = list(argument) if isinstance(argument, Iterator) else None

    def copy(self, argument):
        if self._items is not None:
            return _Watched(self._items)
        if isinstance(argument, torch.Tensor):
            return argument.clone()
        return copy.copy(argument) if isinstance(argument, list | dict | set | deque) else argument

    def look(self, argument):
        """Something that is another once the argument has been changed."""
        if isinstance(argument, _Watched):
            return argument.taken
        if isinstance(argument, torch.Tensor):
            return argument._version
        return len(argument) if isinstance(argument, list | dict | set | deque) else None


class _Watched(Iterator):
    def __init__(self, items: list):
        self._items, self.taken = items, 0

    def __next__(self):
        if self.taken >= len(self._items):
            raise StopIteration
        self.taken += 1
        return self._items[self.taken - 1]


# --- 2, 3, 5, 6, 7: the recomputation finds what the forward found


class _Rewound:
    """A segment whose first call is the forward; each further one begins where that began, in one respect."""

    def __init__(self, segment: Callable, number: int, names: list[str]):
        self._segment, self._number, self._names = segment, number, names
        self._before: Snapshot | None = None
        self._by_itself: set[str] = set()

    def __call__(self, *args):
        if self._before is None:
            return self._forward(args)
        now = Snapshot(self._segment, *args)
        changed = _changed(self._before)
        chosen = {name for name, kind in changed.items() if self._number == self._cause(name, kind)}
        self._names.extend(sorted(chosen))
        self._before.restore(keep={"grad mode", *changed} - chosen)
        try:
            return self._segment(*args)
        finally:
            # No sooner than backward is over are the weights done with: what has saved them has no copy.
            now.restore(keep=_changed(now).keys() - (set() if self._number == WEIGHTS else chosen))

    def _forward(self, args: tuple):
        self._before = Snapshot(self._segment, *args)
        # Parameters, and what is made of them: "weight", gathered or dequantised.
        self._weights = {name for name, tensor in self._before.tensors.items() if tensor.requires_grad}
        recording = torch.is_grad_enabled()
        # A kernel may be chosen by whether gradients are on, and in reentrant's first pass they are off.
        with torch.enable_grad() if self._number == KERNEL else nullcontext():
            output = self._segment(*args)
        self._by_itself = set(_changed(self._before))
        if self._number == KERNEL and not recording:
            self._names.append("grad mode")
            return _mapped(output, torch.Tensor.detach)
        return output

    def _cause(self, name: str, kind: str) -> int:
        if kind == "random stream":
            return RANDOMNESS
        if kind == "switch":
            return KERNEL
        if name.startswith(("args[", "kwargs[")):
            return ARGUMENTS
        if kind == "parameter" or name.endswith("_parameters") or name in self._weights:
            return WEIGHTS
        return STATE if name in self._by_itself else WORLD


def _changed(before: Snapshot) -> dict[str, str]:
    found = before.changed_kinds()
    found |= {name: "random stream" for name in before.moved_streams()}
    found |= {name: "switch" for name in before.moved_switches() if name != "grad mode"}  # see `_forward`
    return found | {name: "context variable" for name in before.moved_context()}
