"""What one pass of a segment did: its operators in order, and every value of a tensor that Python code got to read."""

from __future__ import annotations

import functools
import linecache
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType

import torch
import torch.utils.checkpoint
from torch.overrides import TorchFunctionMode

from recompute_lab.instruments.digest import digest_of

TORCH = os.path.dirname(torch.__file__) + os.sep
_PYTHON = os.path.dirname(os.__file__) + os.sep
_INSTRUMENTS = os.path.dirname(os.path.dirname(__file__)) + os.sep
# By these a tensor's value becomes a value of Python's. What asks for a shape or a flag reads no value.
_READS = {
    *("__bool__", "__float__", "__int__", "__index__", "__complex__", "__contains__", "item", "tolist", "numpy"),
    *("__array__", "equal", "allclose", "is_nonzero"),
}
# What these give is memory that nobody has written yet: its values say nothing.
_UNWRITTEN = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "empty_permuted"}
STOPPED = "_StopRecomputationError"  # torch's, by which early stop leaves the segment
_LARGEST_READ = 4_096  # elements of a list or an array that are kept
_LARGEST_INDEX = 1 << 22  # elements of an index tensor that are looked at


@dataclass(frozen=True, slots=True)
class Read:
    """A value that Python code read from a tensor, at the operator number `after`."""

    operator: str
    value: object
    after: int
    where: str


@dataclass
class Trace:
    """The log of one pass.

    `operators` has (name, shapes and dtypes of the results, code object, line) for each, `indices` a digest of each
    tensor of whole numbers, by its operator's number: routes and masks are made of them. `stops_gradients` says whether
    something was detached, or computed without grad mode. `ended` is "returned",
    "stopped early", or the name of the exception that left the segment.
    """

    operators: list[tuple] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)
    indices: list[tuple[int, torch.Tensor]] = field(default_factory=list)
    stops_gradients: bool = False
    ended: str = "running"

    def where(self, number: int) -> str:
        """The source line of an operator, "file.py:12"; "" where there is none."""
        if not 0 <= number < len(self.operators):
            return ""
        _, _, code, line = self.operators[number]
        return place(code, line)

    def code(self, number: int) -> str:
        """The text of that line, shortened; "" where there is none."""
        if not 0 <= number < len(self.operators):
            return ""
        _, _, code, line = self.operators[number]
        text = linecache.getline(code.co_filename, line).strip()
        return text if len(text) <= 60 else text[:57] + "..."

    def name(self, number: int) -> str:
        return self.operators[number][0] if 0 <= number < len(self.operators) else "nothing"

    def index_values(self) -> list[tuple[int, float]]:
        if not self.indices:
            return []
        digests = torch.stack([digest.to("cpu", torch.float64) for _, digest in self.indices]).tolist()
        return [(number, digest) for (number, _), digest in zip(self.indices, digests, strict=True)]


class Tracer(TorchFunctionMode):
    """Inside, every operator is entered into `trace`. It changes nothing of what the operators do."""

    def __init__(self, trace: Trace):
        super().__init__()
        self.trace = trace
        self._entries: dict[tuple, tuple] = {}  # equal ones are kept once: a long log is no work for the collector

    def __torch_function__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        if torch.compiler.is_dynamo_compiling():  # a graph is made of the segment's operators, not of these lines
            return result
        name = getattr(function, "__name__", "?")
        # A property (shape, dtype, grad); or not the segment's: torch's own pack hook, a witness further in.
        if name == "__get__" or _is_machinery(sys._getframe(1).f_code.co_filename):
            return result
        # What a `finally` or an `__exit__` does while early stop passes through it comes after the recomputation's end.
        if getattr(sys.exc_info()[0], "__name__", "") == STOPPED:
            return result
        if isinstance(result, torch.Tensor):
            signature = (result.shape, result.dtype)
            self._note(name, signature, result)
        elif isinstance(result, tuple | list) and any(isinstance(r, torch.Tensor) for r in result):
            signature = tuple((r.shape, r.dtype) if isinstance(r, torch.Tensor) else type(r) for r in result)
            self._note(name, signature, *(r for r in result if isinstance(r, torch.Tensor)))
        elif name in _READS:
            where = place(*line_outside_torch(sys._getframe(1)))
            self.trace.reads.append(Read(name, _kept(result), len(self.trace.operators), where))
        return result

    def _note(self, name: str, signature: tuple, *results: torch.Tensor) -> None:
        number = len(self.trace.operators)
        if not torch.is_grad_enabled() or name.startswith("detach"):
            self.trace.stops_gradients = True
        entry = name, signature, *line_outside_torch(sys._getframe(2))
        self.trace.operators.append(self._entries.setdefault(entry, entry))
        if name in _UNWRITTEN or name.endswith("_") and not name.endswith("__"):
            return  # in place: a counter, which is state and no route
        for result in results:
            if not (result.is_floating_point() or result.is_complex()) and 0 < result.numel() <= _LARGEST_INDEX:
                if (digest := digest_of(result)) is not None:
                    self.trace.indices.append((number, digest))


def line_outside_torch(frame: FrameType | None) -> tuple[CodeType, int]:
    """The innermost line that led here and is not torch's; torch's own where there is no other."""
    first = frame
    while frame is not None:
        file = frame.f_code.co_filename
        if _is_instruments(file):
            break
        if is_users(file):
            return frame.f_code, frame.f_lineno
        frame = frame.f_back
    return first.f_code, first.f_lineno


@functools.cache
def is_users(file: str) -> bool:
    """Neither torch's, NumPy's, nor Python's own. Other installed packages count as the user's."""
    if (
        file.startswith(TORCH)
        or f"-packages{os.sep}numpy{os.sep}" in file
        or file.startswith("<")
        and not file.startswith(("<stdin", "<ipython"))
    ):
        return False
    return not file.startswith(_PYTHON) or "site-packages" in file or "dist-packages" in file


@functools.cache
def _is_instruments(file: str) -> bool:
    return file.startswith(_INSTRUMENTS)


@functools.cache
def _is_machinery(file: str) -> bool:
    """Checkpointing's hooks and these instruments': a mode sees what they do where a custom function saves a tensor."""
    return file == torch.utils.checkpoint.__file__ or file.startswith(_INSTRUMENTS)


def place(code: CodeType, line: int) -> str:
    """In short, "trunk.py:41"; a notebook's cell is "cell:3"."""
    file = code.co_filename
    return f"{'cell' if 'ipykernel' in file else Path(file).name}:{line}"


def _kept(value):
    """A read value, small enough to keep and to show."""
    if hasattr(value, "tobytes"):  # a NumPy array
        return ("array", value.shape, hash(value.tobytes()))
    if isinstance(value, list) and len(value) > _LARGEST_READ:
        return ("list", len(value), hash(str(value)))
    return value
