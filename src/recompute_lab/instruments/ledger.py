"""The ledger: which tensors a pass saves for backward, one row per saved tensor.

`torch.autograd.graph.saved_tensors_hooks` lets us see every tensor that autograd packs. Hooks do not stack (only the
innermost pair is called), and `torch.utils.checkpoint` counts with a pair of its own; so a recorder steps aside for a
moment and saves each tensor under whatever it covers, by an operator made for that. Recording therefore changes neither
what is saved, nor what checkpointing sees, nor autograd's check for changes in place.
"""

from __future__ import annotations

import functools
import linecache
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from types import CoroutineType, FrameType, GeneratorType

import torch
from torch.overrides import TorchFunctionMode, resolve_name

from recompute_lab.instruments.isolation import isolated

_TORCH = os.path.dirname(torch.__file__) + os.sep
_HERE = __file__
# `saved_tensors_hooks` without its Python: no interrupt can fall between the call and the `try` that it stands in.
_push, _pop = torch._C._autograd._push_saved_tensors_default_hooks, torch._C._autograd._pop_saved_tensors_default_hooks


@dataclass(frozen=True, slots=True)
class SavedTensor:
    """One tensor that a pass saved for backward.

    `position` counts from 1 in the order of saving. `operator` is the torch function that was running ("linear",
    "softmax", "mul"); a function that torch composes in Python of several others appears under its own name.
    `file` and `line` are the innermost line outside torch that led there, or torch's own where the segment has none.
    """

    position: int
    operator: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    device: str
    file: str
    line: int

    @property
    def where(self) -> str:
        """The source line in short form, "trunk.py:41"; a notebook's cell is named "cell:3"."""
        return f"{'cell' if 'ipykernel' in self.file else Path(self.file).name}:{self.line}"

    @property
    def bytes(self) -> int:
        size = self.dtype.itemsize
        for extent in self.shape:
            size *= extent
        return size

    @property
    def key(self) -> tuple:
        """What two passes must share for the rows to be the same entry: all but the position."""
        return (self.operator, self.shape, self.dtype, self.device, self.file, self.line)

    def __str__(self) -> str:
        shape = "x".join(map(str, self.shape)) or "scalar"
        return f"{self.position:>6}  {self.operator:<16} {shape:<14} {str(self.dtype)[6:]:<9} {self.where}"


@dataclass
class Ledger:
    """The saved tensors of one pass, in order, and how the pass ended.

    `ended` is "returned", or "stopped early" (checkpointing had all it needed and left the segment by an exception),
    or "raised NAME".
    """

    rows: list[SavedTensor] = field(default_factory=list)
    ended: str = "running"

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[SavedTensor]:
        return iter(self.rows)

    def __getitem__(self, index):
        return self.rows[index]

    @property
    def bytes(self) -> int:
        """Sum of the sizes of the rows. A tensor saved twice counts twice, also where both share their memory."""
        return sum(row.bytes for row in self.rows)

    def count(self, operator: str | None = None) -> int:
        """How many rows there are, or how many an operator has."""
        return len(self.rows) if operator is None else sum(row.operator == operator for row in self.rows)

    def __str__(self) -> str:
        head, tail = self.rows[:20], self.rows[20:]
        lines = [f"{len(self)} saved tensors, {self.ended}", *map(str, head)]
        return "\n".join(lines + ([f"   ... {len(tail)} more rows"] if tail else []))


class _Operators(TorchFunctionMode):
    """Remembers which torch function is running; the saving happens inside it."""

    def __init__(self):
        super().__init__()
        self.running: Callable | None = None

    def __torch_function__(self, func, types, args=(), kwargs=None):
        before, self.running = self.running, func
        try:
            return func(*args, **(kwargs or {}))
        finally:
            self.running = before


class _Save(torch.autograd.Function):
    """Saves one tensor for a backward that never runs. It needs an input that requires grad: the switch."""

    @staticmethod
    def forward(ctx, switch: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(tensor)
        return switch.clone()


_SWITCH = torch.ones((), requires_grad=True)


class Recorder:
    """Wraps a segment; every call is one pass and appends its `Ledger` to `passes`.

    A recorder is a callable with the segment's own signature, so it can be given to `torch.utils.checkpoint` in the
    segment's place: the forward is then the first ledger, the recomputation the second. No ledger keeps a tensor.
    """

    def __init__(self, segment: Callable):
        if not callable(segment):
            raise TypeError(f"a segment is a callable or an nn.Module; got {type(segment).__name__}")
        self.segment = segment
        self.passes: list[Ledger] = []

    def __call__(self, *args, **kwargs):
        ledger = Ledger()
        self.passes.append(ledger)
        operators = _Operators()

        def pack(tensor: torch.Tensor):
            ledger.rows.append(_row(len(ledger.rows) + 1, tensor, operators.running))
            try:
                _pop()
                with torch.enable_grad():
                    # Detached: an operator's result, kept with its history by that same operator, would never be freed.
                    return _Save.apply(_SWITCH, tensor.detach())
            finally:
                _push(*hooks)

        hooks = pack, lambda saver: saver.grad_fn.saved_tensors[0]
        try:
            with operators:
                try:
                    _push(*hooks)
                    output = self.segment(*args, **kwargs)
                finally:
                    _pop()
        except BaseException as error:
            # torch leaves a recomputation that has all it needs by a private exception; the name is all we rely on.
            stopped = type(error).__name__ == "_StopRecomputationError"
            ledger.ended = "stopped early" if stopped else f"raised {type(error).__name__}"
            raise
        ledger.ended = "returned"
        return output


def _row(position: int, tensor: torch.Tensor, running: Callable | None) -> SavedTensor:
    file, line, function = _locate(running)
    operator = function or _operator_name(running)
    return SavedTensor(position, operator, tuple(tensor.shape), tensor.dtype, str(tensor.device), file, line)


@functools.cache  # torch looks a name up slowly
def _operator_name(running: Callable | None) -> str:
    if running is None:
        return "unknown"
    name = resolve_name(running) or getattr(running, "__name__", "unknown")
    return name.removesuffix(".__get__").rpartition(".")[2].strip("_")


def _locate(running: Callable | None) -> tuple[str, int, str | None]:
    """File and line of the running operator; and the class's name where an autograd.Function is doing the saving."""
    frame = sys._getframe(1)
    innermost, function = None, None
    while frame is not None:
        file = frame.f_code.co_filename
        if file == _HERE:
            if frame.f_code is Recorder.__call__.__code__:
                break
        elif file.startswith(_TORCH):
            innermost = innermost or (file, frame.f_lineno)
            cls = frame.f_locals.get("cls") if frame.f_code.co_name == "apply" else None
            if isinstance(cls, type) and cls is not _Save:
                function = function or cls.__name__
        else:
            return file, frame.f_lineno, function or (None if running else _called(frame))
        frame = frame.f_back
    return (*(innermost or ("unknown", 0)), function)


def _called(frame: FrameType) -> str | None:
    """The name in a frame's current call, as its line has it: torch 2.14 applies a Function without a Python frame."""
    _, _, start, stop = next(islice(frame.f_code.co_positions(), frame.f_lasti // 2, None))
    line = linecache.getline(frame.f_code.co_filename, frame.f_lineno).encode()
    called = line[start:stop].decode(errors="replace").partition("(")[0].strip()
    return called.removesuffix(".apply").rpartition(".")[2] or None


def record(segment: Callable, *args, **kwargs) -> Ledger:
    """The ledger of one plain forward of `segment(*args, **kwargs)`.

    RNG streams, grads, buffers, attributes and arguments are afterwards what they were; an exception that the segment
    raises passes through, after the same clean-up. Raises TypeError for a generator function, which returns before it
    runs.
    """
    recorder = Recorder(segment)
    with isolated(segment, *args, **kwargs) as fresh:
        output = recorder(*fresh.args, **fresh.kwargs)
    if isinstance(output, GeneratorType | CoroutineType):
        raise TypeError(f"the segment returned a {type(output).__name__} and has not run yet: give a plain function")
    return recorder.passes[0]


Pair = tuple[SavedTensor | None, SavedTensor | None]


def align(first: Sequence[SavedTensor], second: Sequence[SavedTensor] | None, most: int = 2_000) -> list[Pair]:
    """Pair the rows of two passes, with None where a row has no partner. A pass that never ran (None) has no rows.

    A shortest edit script (E. W. Myers, "An O(ND) Difference Algorithm and Its Variations", Algorithmica 1, 1986):
    linear in the number of rows for the few differences that a flipped branch makes. Where more than `most` rows have
    no partner, the passes are different programs: what lies between their common start and their common end is then
    listed without partners.
    """
    second = () if second is None else second
    numbers: dict[tuple, int] = {}  # one number for each key: cheaper to compare
    a, b = ([numbers.setdefault(row.key, len(numbers)) for row in rows] for rows in (first, second))
    start = 0
    while start < min(len(a), len(b)) and a[start] == b[start]:
        start += 1
    stop = 0
    while stop < min(len(a), len(b)) - start and a[-1 - stop] == b[-1 - stop]:
        stop += 1
    end_a, end_b = len(a) - stop, len(b) - stop
    pairs: list[Pair] = list(zip(first[:start], second[:start], strict=True))
    i, j = start, start
    for step_a, step_b in _edit_script(a[start:end_a], b[start:end_b], most):
        pairs.append((first[i] if step_a else None, second[j] if step_b else None))
        i, j = i + step_a, j + step_b
    return pairs + list(zip(first[end_a:], second[end_b:], strict=True))


def _edit_script(a: Sequence, b: Sequence, most: int) -> list[tuple[bool, bool]]:
    """Steps (advance in a, advance in b) of a shortest edit script; all removals, then all additions, past `most`."""
    reached: list[list[int]] = []  # after d edits, reached[d][i] is the furthest place in a on diagonal 2 * i - d
    for edits in range(min(len(a) + len(b), most) + 1):
        reached.append([])
        for i in range(edits + 1):
            k = 2 * i - edits
            x, added = _before(reached, edits, i) if edits else (0, True)
            x += not added
            while x < len(a) and x - k < len(b) and a[x] == b[x - k]:
                x += 1
            reached[edits].append(x)
            if x >= len(a) and x - k >= len(b):
                return _backtrack(reached, len(a), len(b))
    return [(True, False)] * len(a) + [(False, True)] * len(b)


def _before(reached: list[list[int]], edits: int, i: int) -> tuple[int, bool]:
    """The place in a before the last of `edits` edits, and whether that edit was an addition from b."""
    last = reached[edits - 1]
    added = i == 0 or (i < edits and last[i - 1] < last[i])
    return (last[i] if added else last[i - 1]), added


def _backtrack(reached: list[list[int]], x: int, y: int) -> list[tuple[bool, bool]]:
    steps = []
    for edits in range(len(reached) - 1, 0, -1):
        k = x - y
        before_x, added = _before(reached, edits, (k + edits) // 2)
        before_y = before_x - (k + 1 if added else k - 1)
        steps += [(True, True)] * min(x - before_x, y - before_y)
        steps.append((not added, added))
        x, y = before_x, before_y
    return [(True, True)] * x + steps[::-1]


def unmatched(pairs: Sequence[Pair]) -> list[Pair]:
    """The pairs in which one side is missing: the odd ones out."""
    return [pair for pair in pairs if None in pair]
