"""Make a write idempotent: a second forward of the same batch then writes what the first one wrote."""

from __future__ import annotations

from torch import nn


class Idempotent:
    """Each forward of `module` in train mode starts from the buffers of the last `commit()`, however often it runs.

    So the recomputation finds the state that the forward found and leaves behind what the forward left: bit for bit the
    baseline's buffers. It works for every module that keeps its state in buffers, under both implementations, nested
    to any depth. Call `commit()` once per forward, when its backward is done (`optimizer.register_step_post_hook(lambda
    *_: once.commit())`); without it the buffers stay at the last commit and one batch. `remove()` ends it. Raises
    ValueError for a module without buffers.
    """

    def __init__(self, module: nn.Module):
        self._buffers = dict(module.named_buffers())
        if not self._buffers:
            raise ValueError(f"{type(module).__name__} has no buffers: there is nothing that its forward could write")
        self.commit()
        self._handle = module.register_forward_pre_hook(self._rewind)

    def commit(self) -> None:
        """What the buffers hold now is what the next forward starts from."""
        self._committed = {n: buffer.detach().clone() for n, buffer in self._buffers.items()}

    def remove(self) -> None:
        """Forwards start from wherever the buffers are, as without this."""
        self._handle.remove()

    def _rewind(self, module: nn.Module, args: tuple) -> None:
        if module.training:
            for name, buffer in self._buffers.items():
                buffer.data.copy_(self._committed[name])  # `.data`: see repairs/replay.py
