"""A checkpoint of one's own, on saved-tensor hooks: what torch's non-reentrant implementation does, in forty lines.

In the forward, each tensor that autograd wants to save is replaced by an empty slot. When backward first asks for one,
the segment is run again and its saved tensors fill the slots, in order. What else has to be as it was is a matter of
stages: nothing (naive), torch's random streams, every random stream; and a comparison of the two passes at the end.

It claims: gradients bit-equal to the plain run of a segment that is a function of its arguments, the weights, the
streams it was told of, and autocast; activations freed between the passes; nesting; `autograd.grad`, several
outputs, keyword arguments, inputs without grad, several backwards through one graph, and double backward; and an error
where autograd's check for changes in place would raise in the plain run, for arguments and for activations that the
segment changes itself. Of weights and captured tensors that change between the passes it knows nothing, like torch's.
It does not stop the recomputation early, which is what lets it count both ways.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._pytree import tree_flatten, tree_unflatten
from torch.utils.checkpoint import CheckpointError

from recompute_lab.instruments.checkpointing import Strategy
from recompute_lab.instruments.streams import Stream, generator_stream, library_streams, rewound, torch_streams


class RecomputationMismatch(CheckpointError):
    """The passes did not save the same tensors; the message says at which place they part."""


class Slot:
    """Stands in the graph for a saved tensor. When the graph lets go of it, what was recomputed for it is freed."""


class Frame:
    """One checkpointed call: what the recomputation needs, and the slots it fills."""

    def __init__(self, segment: Callable, args: tuple, kwargs: dict, streams: list[Stream], compare: bool):
        self.segment, self.streams, self.compare = segment, streams, compare
        self.arguments = keep((args, kwargs))
        self.states = [stream.read() for stream in streams]
        self.autocast = autocast_now()
        self.slots: list[weakref.ref[Slot]] = []
        self.saved: list[tuple] = []  # the forward's, in order: shape, dtype, device
        self.filled: weakref.WeakKeyDictionary[Slot, tuple[torch.Tensor, int]] = weakref.WeakKeyDictionary()
        self.forward_ended = False

    def pack(self, tensor: torch.Tensor) -> Slot:
        slot = Slot()
        self.slots.append(weakref.ref(slot))
        self.saved.append(metadata(tensor))
        return slot

    def unpack(self, slot: Slot) -> torch.Tensor:
        if slot not in self.filled:
            try:
                self.recompute()
            except BaseException:
                self.filled.clear()  # else the next backward would be given what this one refused
                raise
        if slot not in self.filled:
            raise RecomputationMismatch("the recomputation ended before the saved tensor that backward asks for")
        tensor, version = self.filled[slot]
        if tensor._version != version:  # autograd checks this itself, but not for what comes from a hook
            raise RuntimeError(
                "a tensor needed for gradient computation has been modified by an inplace operation after the segment "
                f"saved it: {_told(metadata(tensor))}"
            )
        return tensor

    def recompute(self) -> None:
        recomputed: list[tuple] = []

        def fill(tensor: torch.Tensor) -> torch.Tensor:
            # Detached: a result that its own operator keeps, with its history, is never freed.
            tensor, place = tensor.detach(), len(recomputed)
            if place < len(self.slots) and (slot := self.slots[place]()) is not None:
                self.filled[slot] = tensor, tensor._version
            recomputed.append(metadata(tensor))
            return tensor

        args, kwargs = self.arguments()
        with rewound(self.streams, self.states), self.autocast(), torch.enable_grad():
            with saved_tensors_hooks(fill, lambda tensor: tensor):
                self.segment(*args, **kwargs)
        if self.compare and self.forward_ended:  # not for a backward inside the forward
            compare(self.saved, recomputed)


def checkpoint(segment: Callable, args: tuple, kwargs: dict, streams: list[Stream], compare: bool):
    """Run `segment(*args, **kwargs)` and keep what its recomputation needs in place of its saved tensors."""
    frame = Frame(segment, args, kwargs, streams, compare)
    with saved_tensors_hooks(frame.pack, frame.unpack):
        output = segment(*args, **kwargs)
    frame.forward_ended = True
    return output


def metadata(tensor: torch.Tensor) -> tuple:
    return tuple(tensor.shape), tensor.dtype, tensor.device


def compare(saved: list[tuple], recomputed: list[tuple]) -> None:
    """Raises RecomputationMismatch for the first place at which the passes differ, or for their counts, either way."""
    for number, (before, after) in enumerate(zip(saved, recomputed, strict=False), 1):
        if before != after:
            raise RecomputationMismatch(
                f"saved tensor number {number} has different metadata: {_told(before)} in forward, {_told(after)} in "
                f"recomputation ({len(saved)} and {len(recomputed)} tensors in all)"
            )
    if len(saved) != len(recomputed):
        raise RecomputationMismatch(
            f"a different number of tensors was saved during forward: {len(saved)}, and in recomputation: "
            f"{len(recomputed)}"
        )


def _told(entry: tuple) -> str:
    shape, dtype, device = entry
    return f"{list(shape)} {str(dtype).removeprefix('torch.')} on {device}"


class _Keep(torch.autograd.Function):
    """Saves tensors for a backward that never runs: so the hooks of an enclosing checkpoint get to see them."""

    @staticmethod
    def forward(ctx, switch: torch.Tensor, *tensors: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(*tensors)
        return switch.clone()


def keep(value) -> Callable[[], object]:
    """A function that returns `value` again: its tensors are kept as autograd keeps saved tensors.

    So they are checked for changes in place, and an enclosing checkpoint replaces them in its turn: otherwise a nested
    one would hold on to activations.
    """
    leaves, structure = tree_flatten(value)
    places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
    with torch.enable_grad():
        kept = _Keep.apply(torch.ones((), requires_grad=True), *(leaves[i] for i in places))
    others = [None if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]

    def again():
        found = list(others)
        for i, tensor in zip(places, kept.grad_fn.saved_tensors, strict=True):
            found[i] = tensor
        return tree_unflatten(found, structure)

    return again


def autocast_now() -> Callable:
    """A context manager that switches autocast to where it stands now, on every kind of device here."""
    kinds = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
    settings = [
        dict(
            device_type=kind,
            enabled=torch.is_autocast_enabled(kind),
            dtype=torch.get_autocast_dtype(kind),
            cache_enabled=torch.is_autocast_cache_enabled(),
        )
        for kind in kinds
    ]

    @contextmanager
    def as_it_was() -> Iterator[None]:
        with ExitStack() as stack:
            for setting in settings:
                stack.enter_context(torch.autocast(**setting))
            yield

    return as_it_was


@dataclass(frozen=True)
class OwnCheckpoint(Strategy):
    """This checkpoint as a strategy, at one of its stages.

    `replays` is "nothing", "torch" (its generators of the CPU and of the devices the arguments live on) or "everything"
    (Python's and NumPy's as well, and `generators`, which nobody can find by themselves). `compares` turns on the
    comparison of the passes. Raises ValueError for another stage, TypeError for what is no generator.
    """

    name: str = "own"
    use_reentrant: bool | None = False
    early_stop: bool = False
    replays: str = "everything"
    compares: bool = True
    generators: tuple = ()

    def __post_init__(self):
        if self.replays not in ("nothing", "torch", "everything"):
            raise ValueError(f"`replays` is 'nothing', 'torch' or 'everything'; got {self.replays!r}")
        for generator in self.generators:
            generator_stream(generator)

    def __call__(self, segment: Callable, *args, **kwargs):
        return checkpoint(segment, args, kwargs, self._streams(args, kwargs), self.compares)

    def _streams(self, args: tuple, kwargs: dict) -> list[Stream]:
        if self.replays == "nothing":
            return []
        tensors = [leaf for leaf in tree_flatten((args, kwargs))[0] if isinstance(leaf, torch.Tensor)]
        if self.replays == "torch":
            return torch_streams(tensors)
        return [*torch_streams(tensors), *library_streams(), *map(generator_stream, self.generators)]


NAIVE = OwnCheckpoint("own, nothing replayed", replays="nothing", compares=False)
TORCH_REPLAYED = OwnCheckpoint("own, torch's streams", replays="torch", compares=False)
ALL_REPLAYED = OwnCheckpoint("own, every stream", replays="everything", compares=False)
OWN = OwnCheckpoint("own, both ways compared")
