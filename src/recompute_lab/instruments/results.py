"""What an evaluation returns, taken apart into named entries, copied, and compared bit for bit.

An entry is a number, a string, a tensor, a NumPy array or a list of numbers. Entries are found in dicts, lists, tuples,
dataclasses and namedtuples, to any depth, and named by their place: "accuracy", "per_class.3", "scores[0]".
"""

from __future__ import annotations

import collections.abc
import dataclasses
import datetime
import enum
import math
import numbers
import re
import struct
import sys
from dataclasses import dataclass

import torch

from recompute_lab.instruments.gradients import ROUNDING
from recompute_lab.instruments.state import same_bits

WHOLE = "result"  # what a result is called that is one value, and has no name
_ABSENT = object()
_TIMES = re.compile(
    r"(^|[^a-z])(time|timestamp|secs?|seconds?|ms|millis|milliseconds|minutes|hours|elapsed|duration|latency|runtime|"
    r"throughput|fps|time_(s|sec|ms|ns|us|taken|elapsed|total|per_\w+))$"
)
_PLAIN = (str, bytes, type(None), numbers.Number, enum.Enum, type, datetime.date, datetime.time, datetime.timedelta)
_DEEPEST = 40


@dataclass(frozen=True)
class Values:
    """Values in a row, one for each sample perhaps; `kind` says of what: "list", "tuple", or an array's dtype."""

    kind: str
    numbers: tuple


@dataclass(frozen=True)
class Metric:
    """One entry of the result, in the first run and in the one that it is compared with.

    `agrees` is True where every bit is the same. `told` says how they differ. `sample` is the first index (of the first
    dimension) at which a row of values differs, `many` how many do; None for a single value. `is_time` marks what is a
    time by its type or its name. `by_rounding` is True where the difference is no larger than rounding makes it.
    """

    name: str
    first: object
    second: object
    agrees: bool
    told: str = ""
    sample: int | None = None
    many: int | None = None
    is_time: bool = False
    by_rounding: bool = False

    @property
    def length(self) -> int | None:
        """How many values there are in a row; None for a single value."""
        if isinstance(self.first, Values):
            return len(self.first.numbers)
        return len(self.first) if isinstance(self.first, torch.Tensor) and self.first.dim() else None

    def __str__(self) -> str:
        return f"{self.name}: {self.told}" if self.told else f"{self.name} {brief(self.first)}"


def entries(result) -> tuple[dict[str, object], dict[str, str]]:
    """Copies of all entries by name, and by name the types of what cannot be compared.

    Raises TypeError for an iterator, which is read once, and for a result without anything to compare.
    """
    found: dict[str, object] = {}
    skipped: dict[str, str] = {}
    _collect("", result, found, skipped, 0)
    if all(value is None for value in found.values()):
        empty = "an empty " if not found and not skipped else "a value of type "
        raise TypeError(
            "an evaluation returns numbers, tensors, arrays or strings, or dicts, lists, tuples and dataclasses of "
            f"them; this one returned {'None' if result is None else empty + type(result).__name__}"
        )
    return found, skipped


def compared(first: dict[str, object], second: dict[str, object]) -> list[Metric]:
    """Every entry of either result, in the first one's order; the order of a dict's keys means nothing."""
    names = dict.fromkeys((*first, *second))
    return [_compared(name, first.get(name, _ABSENT), second.get(name, _ABSENT)) for name in names]


def brief(value) -> str:
    """A value in a few characters."""
    if isinstance(value, torch.Tensor) and value.numel() == 1 and not value.is_meta:
        value = value.item()
    if isinstance(value, torch.Tensor):
        return f"{list(value.shape)}"
    if isinstance(value, Values):
        return f"[{len(value.numbers)}]"
    if value is _ABSENT:
        return "nothing"
    text = f"{value:.4g}" if isinstance(value, float) else repr(value)
    return text if len(text) <= 40 else text[:37] + "..."


# --- Taking apart


def _collect(place: str, value, found: dict, skipped: dict, depth: int) -> None:
    """Enter the value at `place` ("" is the whole result), and what is in it, into `found` or `skipped`."""
    numpy, name = sys.modules.get("numpy"), place or WHOLE
    if isinstance(value, torch.Tensor) and value.is_nested:
        _collect(place, list(value.detach().unbind()), found, skipped, depth + 1)
    elif isinstance(value, torch.Tensor):
        found[name] = value.detach().clone()
    elif numpy is not None and isinstance(value, numpy.ndarray | numpy.generic):
        _collect_array(place, value, found, skipped, depth)
    elif isinstance(value, _PLAIN):
        found[name] = value
    elif isinstance(value, set | frozenset) and all(isinstance(member, _PLAIN) for member in value):
        found[name] = frozenset(value)
    elif isinstance(value, collections.abc.Coroutine):
        value.close()
        raise TypeError(
            f"{place or 'the evaluation'} returned a coroutine, which nobody has awaited: give a function that "
            "runs it, lambda *args: asyncio.run(evaluation(*args))"
        )
    elif isinstance(value, collections.abc.Iterator):
        raise TypeError(
            f"{place or 'the evaluation'} returned a {type(value).__name__}, which computes when it is read, and can "
            "be read only once: return list(...) of it, or the number that is made of it"
        )
    elif depth > _DEEPEST:
        skipped[name] = "something in itself"
    elif _is_row(value):
        found[name] = Values("list" if isinstance(value, list) else "tuple", tuple(value))
    elif (members := _members(value)) is not None:
        for key, member in members:
            inner = f"{name}{key}" if key.startswith("[") else f"{place}.{key}" if place else key
            _collect(inner, member, found, skipped, depth + 1)
    else:
        skipped[name] = type(value).__name__


def _is_row(value) -> bool:
    if not isinstance(value, list | tuple) or hasattr(value, "_fields"):
        return False
    return len(value) > 1 and all(isinstance(member, numbers.Number) for member in value)


def _members(value) -> list[tuple[str, object]] | None:
    """(key, member) of a dict, list, tuple, namedtuple or dataclass; None for anything else."""
    if isinstance(value, collections.abc.Mapping):
        return [(_told_key(i, key), member) for i, (key, member) in enumerate(value.items())]
    if isinstance(value, list | tuple):
        places = getattr(value, "_fields", None) or [f"[{i}]" for i in range(len(value))]
        return list(zip(places, value, strict=True))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [(field.name, getattr(value, field.name, None)) for field in dataclasses.fields(value)]
    return None


def _told_key(position: int, key) -> str:
    if isinstance(key, str):
        return key
    if isinstance(key, enum.Enum):
        return key.name
    told = repr(key) if isinstance(key, (*_PLAIN, tuple)) else f"{type(key).__name__} {position}"  # without its address
    return f"[{told}]"


def _collect_array(place: str, value, found: dict, skipped: dict, depth: int) -> None:
    name = place or WHOLE
    if value.dtype.hasobject:
        _collect(place, value.tolist(), found, skipped, depth + 1)
        return
    try:
        found[name] = torch.from_numpy(value.copy()) if value.ndim else value.item()
    except (TypeError, ValueError):  # text, dates, numbers of a kind that torch has not
        found[name] = Values(f"{value.dtype} {value.shape}", tuple(value.reshape(-1).tolist()))


# --- Comparing


def _compared(name: str, a, b) -> Metric:
    if a is _ABSENT or b is _ABSENT:
        return Metric(name, a, b, False, f"only the {'second' if a is _ABSENT else 'first'} run returns it")
    is_time = isinstance(a, datetime.date | datetime.time | datetime.timedelta) or bool(_TIMES.search(name.casefold()))
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        return _compared_tensors(name, a, b, is_time)
    if isinstance(a, Values) and isinstance(b, Values):
        return _compared_values(name, a, b, is_time)
    if type(a) is not type(b):
        told = f"{brief(a)} ({type(a).__name__}) → {brief(b)} ({type(b).__name__})"
        return Metric(name, a, b, False, told, is_time=is_time)
    if _same(a, b):
        return Metric(name, a, b, True, is_time=is_time)
    return Metric(name, a, b, False, _apart(a, b), is_time=is_time, by_rounding=_close(a, b))


def _compared_tensors(name: str, a: torch.Tensor, b: torch.Tensor, is_time: bool) -> Metric:
    if same_bits(a, b):
        return Metric(name, a, b, True, is_time=is_time)
    if a.shape != b.shape or a.dtype != b.dtype:
        kinds = [f"{list(t.shape)} {str(t.dtype).removeprefix('torch.')}" for t in (a, b)]
        return Metric(name, a, b, False, " → ".join(kinds), is_time=is_time)
    if a.layout is not torch.strided or a.is_quantized or a.device != b.device:
        return Metric(name, a, b, False, "other values", is_time=is_time)
    if not a.dim():
        a, b = a.item(), b.item()
        return Metric(name, a, b, False, _apart(a, b), is_time=is_time, by_rounding=_close(a, b))
    differing = differing_rows(a, b)
    row = int(differing[0])
    pairs = zip(a[row].reshape(-1).tolist(), b[row].reshape(-1).tolist(), strict=True)
    value = next(((x, y) for x, y in pairs if not _same(x, y)), (0, 0))
    told = f"{len(differing)} of {len(a)} differ, first number {row}: {_apart(*value)}"
    return Metric(name, a, b, False, told, row, len(differing), is_time, bool(_all_close(a, b)))


def differing_rows(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Of two tensors of one shape and dtype, the indices in the first dimension at which any bit differs."""
    a, b = (t.detach().resolve_conj().resolve_neg().contiguous().cpu().reshape(len(t), -1) for t in (a, b))
    return (a.view(torch.uint8) != b.view(torch.uint8)).any(1).nonzero().flatten()


def _all_close(a: torch.Tensor, b: torch.Tensor) -> bool:
    if not (a.is_floating_point() or a.is_complex()):
        return False
    a, b = a.to(torch.complex128), b.to(torch.complex128)
    scale = a.abs().nan_to_num(0.0, posinf=0.0).max()
    same = torch.where(a.isnan() & b.isnan() | (a == b), 0.0, (a - b).abs())
    return bool((same <= ROUNDING * scale).all())


def _compared_values(name: str, a: Values, b: Values, is_time: bool) -> Metric:
    if a.kind != b.kind or len(a.numbers) != len(b.numbers):
        told = f"{brief(a)} {a.kind} → {brief(b)} {b.kind}"
        return Metric(name, a, b, False, told, is_time=is_time)
    pairs = enumerate(zip(a.numbers, b.numbers, strict=True))
    differing = [(i, x, y) for i, (x, y) in pairs if type(x) is not type(y) or not _same(x, y)]
    if not differing:
        return Metric(name, a, b, True, is_time=is_time)
    row, x, y = differing[0]
    told = f"{len(differing)} of {len(a.numbers)} differ, first number {row}: {_apart(x, y)}"
    rounding = all(_close(x, y) for _, x, y in differing)
    return Metric(name, a, b, False, told, row, len(differing), is_time, rounding)


def _same(a, b) -> bool:
    """The same to the last bit: a NaN is one of the same bits, 0.0 is not -0.0."""
    if isinstance(a, float) and isinstance(b, float):
        return struct.pack("d", a) == struct.pack("d", b)
    if isinstance(a, complex) and isinstance(b, complex):
        return _same(a.real, b.real) and _same(a.imag, b.imag)
    if isinstance(a, tuple) and isinstance(b, tuple):  # a record
        return len(a) == len(b) and all(map(_same, a, b))
    if isinstance(a, frozenset) and isinstance(b, frozenset):  # also one with a NaN, which equals no other
        return sorted(map(repr, a)) == sorted(map(repr, b))
    if type(a) is type(b) and _is_nan(a) and _is_nan(b):  # a Decimal's, a long double's, a date's
        return repr(a) == repr(b)
    return bool(a == b)


def _is_nan(value) -> bool:
    return isinstance(value, numbers.Number) and not value == value


def _close(a, b) -> bool:
    if not (isinstance(a, float | complex) and isinstance(b, float | complex)):
        return False
    return a == b or abs(a - b) <= ROUNDING * max(abs(a), abs(b))


def _apart(a, b) -> str:
    """Both values, in as many digits as it takes to tell them apart."""
    if isinstance(a, float) and isinstance(b, float):
        if math.isnan(a) and math.isnan(b):
            return "nan → nan, of other bits"
        if a == b:
            return f"{a} → {b}, which == takes for equal"
        digits = next((d for d in range(4, 17) if f"{a:.{d}g}" != f"{b:.{d}g}"), 17)
        return f"{a:.{digits}g} → {b:.{digits}g}"
    return f"{brief(a)} → {brief(b)}"
