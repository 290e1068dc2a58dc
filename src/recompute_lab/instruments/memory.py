"""What a training step keeps in memory: bytes of tensors, not what an allocator has reserved.

A step's forward leaves tensors behind for its backward. `footprint` counts them: every storage (the
block of memory behind a tensor and its views) that an operator of the step makes is counted once,
from the operator that made it until the moment it is freed. The result follows from the program and
its shapes and dtypes, not from how fast or on how many threads it runs.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from recompute_lab.instruments.interrupts import uninterrupted
from recompute_lab.instruments.isolation import copy_call, tensors_in
from recompute_lab.instruments.state import Snapshot


@dataclass(frozen=True)
class Footprint:
    """Bytes of one forward and backward, over what existed before: parameters, arguments, buffers.

    `kept` is alive when forward has returned, its result included. `peak` is the most that is alive
    at once during forward and backward. Finished gradients of parameters and arguments are in
    neither, but in `gradients`: they are the same whatever is checkpointed.
    """

    kept: int
    peak: int
    gradients: int


def footprint(step: Callable, *args, **kwargs) -> Footprint:
    """Run `step` forward and backward once on copies of its arguments and count the bytes it holds.

    Backward starts from ones at every output that requires grad. All state the step can reach is
    afterwards as it was. Not seen: scratch memory inside one operator, sparse tensors, and memory
    shared with NumPy. Backward frees the graph, as a training step does; so do not give a step that
    has captured a tensor of a graph you still need. What the step raises passes through.
    Raises TypeError where `step` cannot be called, ValueError where no output requires grad.
    """
    if not callable(step):
        raise TypeError(f"a step is a callable or an nn.Module; got {type(step).__name__}")
    before = Snapshot(step, *args, **kwargs)
    storages, hooks, collecting = _Storages(), [], gc.isenabled()
    try:
        gc.disable()  # a collection falls at no fixed moment, and might free what another run holds
        before.clear_grads()
        call = copy_call(*args, **kwargs)
        leaves = {id(t): t for t in [*before.parameters().values(), *call.leaves.values()]}.values()
        with uninterrupted():
            hooks = [leaf.register_post_accumulate_grad_hook(storages.set_apart) for leaf in leaves]
        with storages:
            output = step(*call.args, **call.kwargs)
            kept = storages.alive
            results = [tensor for tensor in tensors_in(output) if tensor.requires_grad]
            if not results:
                why = "no tensor of the output requires grad" if torch.is_grad_enabled() else "grad mode is off"
                raise ValueError(f"nothing to differentiate: {why}")
            torch.autograd.backward(results, [torch.ones_like(tensor) for tensor in results])
        return Footprint(kept, storages.peak, storages.gradients)
    finally:
        with uninterrupted():
            for hook in hooks:
                hook.remove()
            before.restore()
            if collecting:
                gc.enable()


class _Storages(TorchDispatchMode):
    """Watches every operator, forward and backward, and counts the bytes their results hold."""

    def __init__(self):
        super().__init__()
        self.alive = self.peak = self.gradients = 0
        self._sizes: dict[int, int] = {}  # of the storages that count
        self._met: dict[int, weakref.ref] = {}  # of all that were seen and are alive

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is not torch.ops.aten.lift_fresh.default:  # its argument is `torch.tensor`'s result
            for tensor in _tensors((args, kwargs)):
                self._meet(tensor, ours=False)
        output = func(*args, **(kwargs or {}))
        for tensor in _tensors(output):
            self._meet(tensor, ours=True)
        self.peak = max(self.peak, self.alive)
        return output

    def set_apart(self, leaf: torch.Tensor) -> None:
        """A leaf's gradient is finished: count its bytes as such, and no longer as the step's."""
        if leaf.grad is None or leaf.grad.layout is not torch.strided:
            return
        size = self._sizes.pop(id(leaf.grad.untyped_storage()), 0)
        self.alive -= size
        self.gradients += size

    def _meet(self, tensor: torch.Tensor, ours: bool) -> None:
        """Count a storage from when it is first seen, unless no operator made it: it was here."""
        if tensor.layout is not torch.strided:
            return
        storage = tensor.untyped_storage()  # one Python object for as long as the storage lives
        key = id(storage)
        if key not in self._met:
            self._met[key] = weakref.ref(storage, lambda _: self._forget(key))
            if ours:
                self._sizes[key] = 0
        if key in self._sizes:  # also where it has been resized in place
            self.alive += storage.nbytes() - self._sizes[key]
            self._sizes[key] = storage.nbytes()

    def _forget(self, key: int) -> None:
        with uninterrupted():  # Python ignores what a callback raises, and the count would go on, wrong
            self.alive -= self._sizes.pop(key, 0)
            del self._met[key]


def _tensors(value) -> Iterator[torch.Tensor]:
    """What `tensors_in` finds among an operator's arguments and results, several times faster."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for member in value:
            yield from _tensors(member)
    elif isinstance(value, dict):
        yield from _tensors(list(value.values()))
