"""What was saved for backward, by value: where both passes saved the same, backward computes the same.

That is the criterion for the gradients of a non-reentrant checkpoint, whatever else the passes did otherwise: an
operator more that saves nothing is harmless, and a number that nobody can reach shows here.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, field

import torch

from recompute_lab.instruments.gradients import ROUNDING
from recompute_lab.instruments.witness.trace import Trace

# Their kernels save what backward does not use (BatchNorm its running statistics), or work space with anything in it.
_OPAQUE = ("norm", "lstm", "gru", "rnn", "attention")
_LARGEST = 1 << 22  # elements that are looked at; of a larger tensor, evenly spread ones


@dataclass(slots=True, eq=False)
class Value:
    """Tells one tensor from another without keeping it: its products with three rows of fixed weights.

    Of a parameter, or a view of one, it is only said where it lies: a snapshot knows what is written to it.
    """

    kind: tuple
    numbers: torch.Tensor | None

    @classmethod
    def of(cls, tensor: torch.Tensor) -> Value:
        # A mode that is on is asked for each shape and dtype, too: this is done for every saved tensor.
        with torch._C.DisableTorchFunction():
            if torch._C._len_torch_dispatch_stack():
                with torch._C._DisableTorchDispatch():
                    return cls._of(tensor)
            return cls._of(tensor)

    @classmethod
    def _of(cls, tensor: torch.Tensor) -> Value:
        owner = tensor if tensor._base is None else tensor._base
        kind = tuple(tensor.shape), tensor.dtype, tensor.device
        if owner.is_leaf and owner.requires_grad:
            return cls((*kind, *_place(tensor)), None)
        if tensor.is_meta or tensor.is_quantized or tensor.layout is not torch.strided or not tensor.numel():
            return cls(kind, None)
        flat = tensor.detach()
        flat = torch.view_as_real(flat.resolve_conj()) if flat.is_complex() else flat
        flat = flat.reshape(-1)
        flat = flat[:: -(-flat.numel() // _LARGEST)] if flat.numel() > _LARGEST else flat
        flat = flat if flat.dtype in (torch.float32, torch.float64) else flat.float()
        weights = _weights(flat.dtype, flat.device, 1 << (flat.numel() - 1).bit_length())
        return cls(kind, weights[:, : flat.numel()].mv(flat))


@functools.lru_cache(maxsize=16)
def _weights(dtype: torch.dtype, device: torch.device, number: int) -> torch.Tensor:
    """[3, number]: a slope, and two waves of other lengths."""
    slope = torch.linspace(0.5, 1.5, number, dtype=dtype, device=device)
    places = torch.arange(number, dtype=dtype, device=device)
    return torch.stack([slope, 1 + (places * 0.7).sin() / 2, (places * 1.3).cos()])


@dataclass
class Saved:
    """Of each tensor that the forward saved, in order: its value, and the number of its operator.

    `differs` holds, after a recomputation, the positions of those whose recomputed value is another, but for rounding;
    None where that is not known.
    """

    values: list[Value] = field(default_factory=list)
    operators: list[int] = field(default_factory=list)
    differs: list[int] | None = None

    def watch(self, frame, trace: Trace) -> None:
        """From now on, until `forward_ended`, note what is saved under torch's record of a call."""
        described = frame.metadata_fn
        if described is None:
            return

        def noted(tensor):
            self.values.append(Value.of(tensor))
            self.operators.append(len(trace.operators))
            return described(tensor)

        noted.described = described
        frame.metadata_fn = noted

    def forward_ended(self, frame) -> None:
        if frame is not None:
            frame.metadata_fn = getattr(frame.metadata_fn, "described", frame.metadata_fn)

    def compare(self, frame, gid) -> None:
        """After a recomputation in which torch has found nothing wrong."""
        if len(self.values) != len(frame.weak_holders):
            return
        positions, before, after = [], [], []
        self.differs = []
        for position, (reference, value) in enumerate(zip(frame.weak_holders, self.values, strict=True)):
            holder = reference()
            handle = None if holder is None else holder.handles.get(gid)
            tensor = None if handle is None else frame.recomputed[gid].get(handle)
            if tensor is None:  # nobody needs it any more
                continue
            now = Value.of(tensor)
            if value.numbers is None or now.numbers is None:
                # What was a parameter is recomputed as a view of its memory, which is no leaf.
                if value.numbers is not None or not _in_place(value, tensor):
                    self.differs.append(position)
            elif now.kind != value.kind:
                self.differs.append(position)
            else:
                positions.append(position)
                before.append(value.numbers)
                after.append(now.numbers)
        if positions:
            pairs = zip(_lists(before), _lists(after), strict=True)
            self.differs += [p for p, (a, b) in zip(positions, pairs, strict=True) if not _close(a, b)]
        self.differs.sort()

    def certainly_differs(self, trace: Trace) -> bool:
        """Something that backward uses, as far as its operator's name tells."""
        names = [trace.name(self.operators[position]) for position in self.differs or ()]
        return any(not any(opaque in name for opaque in _OPAQUE) for name in names)


def _lists(numbers: list[torch.Tensor]) -> list[list[float]]:
    """One look at all of them, where they are of one kind, as mostly: looking waits for a GPU."""
    if len({(n.dtype, n.device) for n in numbers}) > 1:
        numbers = [n.to("cpu", torch.float64) for n in numbers]
    return torch.stack(numbers).tolist()


def _in_place(value: Value, tensor: torch.Tensor) -> bool:
    kind = tuple(tensor.shape), tensor.dtype, tensor.device
    return value.kind == kind or value.kind == (*kind, *_place(tensor))


def _place(tensor: torch.Tensor) -> tuple:
    return tensor.data_ptr(), tensor.stride(), 0 if tensor.is_inference() else tensor._version


def _close(a: list[float], b: list[float]) -> bool:
    """Equal up to rounding. The largest of the products stands for the tensor's size."""
    if any(map(math.isnan, a)) and any(map(math.isnan, b)):
        return True
    scale = ROUNDING * max(map(abs, a + b))
    return a == b or all(abs(x - y) <= scale for x, y in zip(a, b, strict=True))
