"""Where two runs of an evaluation part: its operators one by one, its model's outputs row by row, and its own code."""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import CodeType

import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from recompute_lab.instruments.digest import digest_of
from recompute_lab.instruments.interrupts import stacks_kept
from recompute_lab.instruments.isolation import tensors_in
from recompute_lab.instruments.results import differing_rows
from recompute_lab.instruments.witness.locate import codes_of
from recompute_lab.instruments.witness.trace import is_users, line_outside_torch, place

_MOST_OPERATORS = 200_000
_MOST_BYTES = 1 << 30  # of a model's outputs that are kept
# What these give is memory that nobody has written yet.
_UNWRITTEN = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "empty_permuted"}


@dataclass(frozen=True)
class Step:
    """One operator: `given` and `gave` are digests of its tensors, of what went in and what came out; with what went in
    are its numbers and names.
    """

    name: str
    code: CodeType
    line: int
    given: tuple
    gave: tuple

    @property
    def where(self) -> str:
        return place(self.code, self.line)


@dataclass
class Log:
    """What one run did: its operators in order, and what its model returned, call by call (the first tensor of it)."""

    steps: list[Step] = field(default_factory=list)
    outputs: list[torch.Tensor] = field(default_factory=list)


@contextmanager
def logged(model: nn.Module | None) -> Iterator[Log]:
    """Inside, the operators that are called from this thread are logged, and the outputs of `model`."""
    log = Log()
    left = _MOST_BYTES

    def keep(module, args, output):
        nonlocal left
        tensors = [t for t in tensors_in(output) if t.dim()]
        left -= tensors[0].numel() * tensors[0].element_size() if tensors else 0
        if tensors and left > 0:
            with torch._C.DisableTorchFunction():
                log.outputs.append(tensors[0].detach().cpu().clone())

    hooked = model is not None and not isinstance(model, torch.jit.ScriptModule)  # which takes no hooks
    hook = None
    try:
        hook = model.register_forward_hook(keep) if hooked else None
        with stacks_kept(), _Logger(log):
            yield log
    finally:
        if hook is not None:
            hook.remove()


class _Logger(TorchFunctionMode):
    def __init__(self, log: Log):
        super().__init__()
        self.log = log

    def __torch_function__(self, function, types, args=(), kwargs=None):
        name, kwargs = getattr(function, "__name__", "?"), kwargs or {}
        if name == "__get__" or len(self.log.steps) >= _MOST_OPERATORS:  # a property: shape, dtype, grad
            return function(*args, **kwargs)
        given = _digests((args, kwargs)) + _others((args, kwargs))
        result = function(*args, **kwargs)
        returned = args[0] if name == "__setitem__" else result
        if tensors_in(returned) or tensors_in((args, kwargs)):
            code, line = line_outside_torch(sys._getframe(1))
            gave = () if name in _UNWRITTEN else _digests(returned) or (_plain(returned),)
            self.log.steps.append(Step(name, code, line, given, gave))
        return result


def _digests(value) -> tuple:
    return tuple(d for t in tensors_in(value) if (d := digest_of(t)) is not None)


def _others(value) -> tuple:
    """What was given besides tensors, as far as it can be compared: numbers, names, slices."""
    leaves = [leaf for leaf in tree_leaves(value) if not isinstance(leaf, torch.Tensor)]
    return tuple(repr(leaf) if isinstance(leaf, bool | int | float | str | slice) else type(leaf) for leaf in leaves)


def _plain(value):
    """A number or a text that a tensor was made into (item, tolist), as something to compare."""
    return repr(value) if isinstance(value, bool | int | float | str | list) else None


@dataclass(frozen=True)
class Parting:
    """The first operator that came out otherwise.

    `itself` is True where it was given the same bits and made others of them: a draw, or additions in no fixed order.
    `other` is the operator that the other run had in its place, where that is another one: a branch of Python's.
    """

    name: str
    where: str
    itself: bool = False
    other: str = ""

    def __str__(self) -> str:
        if self.other:
            return f"{self.name}, {self.where}; in the other run {self.other}"
        return f"{self.name}, {self.where}" + (", given the same" if self.itself else "")


def first_parting(a: Log, b: Log) -> Parting | None:
    """Where two runs part; None where all operators came out alike."""
    for one, two in zip(a.steps, b.steps, strict=False):
        if (one.name, one.code, one.line) != (two.name, two.code, two.line):
            return Parting(one.name, one.where, other=f"{two.name}, {two.where}")
        if not _equal(one.gave, two.gave):
            return Parting(one.name, one.where, itself=_equal(one.given, two.given))
    if len(a.steps) == len(b.steps):
        return None
    longer, other = (a, b) if len(a.steps) > len(b.steps) else (b, a)
    step = longer.steps[len(other.steps)]
    return Parting(step.name, step.where, other="nothing more")


def _equal(a: tuple, b: tuple) -> bool:
    if len(a) != len(b):
        return False
    for x, y in zip(a, b, strict=True):
        if isinstance(x, torch.Tensor) and isinstance(y, torch.Tensor):
            if x.device != y.device or not (torch.equal(x, y) or x.isnan() and y.isnan()):
                return False
        elif isinstance(x, torch.Tensor) or isinstance(y, torch.Tensor) or x != y:
            return False
    return True


def first_row(a: Log, b: Log) -> int | None:
    """The number of the first row of the model's outputs, counted over all its calls, that differs; None for none."""
    before = 0
    for one, two in zip(a.outputs, b.outputs, strict=False):
        if one.shape != two.shape or one.dtype != two.dtype:
            return before + min(len(one), len(two)) if one.shape[1:] == two.shape[1:] else before
        if len(differing := differing_rows(one, two)):
            return before + int(differing[0])
        before += len(one)
    return before if len(a.outputs) != len(b.outputs) else None


# What code names that gives something else each time, and that nobody can put back: the word, and what is said of it.
_UNSEEDED = {
    "uuid4": "names made anew in each run (uuid4)",
    "uuid1": "names made anew in each run (uuid1)",
    "urandom": "the operating system's random numbers (urandom)",
    "SystemRandom": "the operating system's random numbers (SystemRandom)",
    "token_hex": "the operating system's random numbers (token_hex)",
    "default_rng": "a generator seeded anew in each run (default_rng)",
    "perf_counter": "a clock (perf_counter)",
    "monotonic": "a clock (monotonic)",
    "time": "a clock (time)",
    "now": "a clock (now)",
    "getpid": "the number of the process (getpid)",
    "id": "an object's address (id)",
    "hash": "a hash, which may be made of an address (hash)",
    "as_completed": "threads, in the order in which they finish (as_completed)",
    "imap_unordered": "processes, in the order in which they finish (imap_unordered)",
    "open": "a file (open)",
    "read_text": "a file (read_text)",
    "listdir": "files in no fixed order (listdir)",
    "scandir": "files in no fixed order (scandir)",
    "glob": "files in no fixed order (glob)",
    "rglob": "files in no fixed order (rglob)",
    "iterdir": "files in no fixed order (iterdir)",
}
_A_SET = "the order of a set"


def unseeded(evaluation: Callable, args: tuple, kwargs: dict) -> list[tuple[str, str]]:
    """(what it is, "file.py:12") for all that the code names, or makes, which can come otherwise in each run."""
    found: dict[str, str] = {}
    for code in codes_of(evaluation, args, kwargs):
        if not is_users(code.co_filename):
            continue
        line = code.co_firstlineno
        for step in dis.get_instructions(code):
            if step.positions and step.positions.lineno:
                line = step.positions.lineno
            told = ""
            if step.opname in ("BUILD_SET", "SET_ADD", "SET_UPDATE") or _loads(step, "set", "frozenset"):
                told = _A_SET
            elif step.argval in _UNSEEDED if isinstance(step.argval, str) and _loads(step, step.argval) else False:
                told = _UNSEEDED[step.argval]
            if told:
                found.setdefault(told, place(code, line))
    # A set of fresh names has an order of its own in each run: what makes the names says more.
    return sorted(found.items(), key=lambda item: item[0] == _A_SET)


def _loads(step: dis.Instruction, *names: str) -> bool:
    return (
        step.opname in ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_ATTR", "LOAD_METHOD", "LOAD_DEREF") and step.argval in names
    )
