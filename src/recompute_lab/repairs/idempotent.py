"""Make a write idempotent: a second forward of the same batch then writes what the first one wrote."""

from __future__ import annotations

import torch
from torch import nn


class Idempotent:
    """Each forward of `module` in train mode starts from the buffers of the last `commit()`, however often it runs.

    So the recomputation finds the state that the forward found and leaves behind what the forward left: bit for bit the
    baseline's buffers. It works for every module that keeps its state in buffers, written in place or assigned anew,
    under both implementations, nested to any depth. Call `commit()` once per forward, when its backward is done
    (`optimizer.register_step_post_hook(lambda *_: once.commit())`); without it the buffers stay at the last commit and
    one batch. What comes from elsewhere, by `load_state_dict` or `to`, is committed by itself. `remove()` ends it, and
    has to before the module is copied: a copy brings a copy of this, which nobody commits. Raises ValueError for a
    module without buffers.
    """

    def __init__(self, module: nn.Module):
        self._module = module
        self.commit()
        if not self._start:
            raise ValueError(f"{type(module).__name__} has no buffers: there is nothing that its forward could write")
        self._handles = [
            module.register_forward_pre_hook(self._rewind),
            module.register_forward_hook(self._note, always_call=True),  # early stop leaves by an exception
            *(part.register_load_state_dict_post_hook(self._loaded) for part in module.modules()),
        ]

    def commit(self) -> None:
        """What the buffers hold now is what the next forward starts from."""
        self._start = {
            (part, name): (buffer, buffer.detach().clone())
            for part in self._module.modules()
            for name, buffer in part._buffers.items()
            if buffer is not None
        }
        self._note()

    def remove(self) -> None:
        """Forwards start from wherever the buffers are, as without this."""
        for handle in self._handles:
            handle.remove()

    def _rewind(self, *_) -> None:
        for (part, name), (buffer, value) in list(self._start.items()):
            now = part._buffers.get(name)
            if now is not None and now is not buffer and now is not self._left[part, name]:
                self._start[part, name] = now, now.detach().clone()  # by `to`, not by a forward
            elif part.training:
                part._buffers[name] = buffer
                if not _expanded(buffer):
                    _in_place(buffer).copy_(value)

    def _loaded(self, *_) -> None:
        self.commit()

    def _note(self, *_) -> None:
        """Which tensors the forward left; in any other, somebody else put it in their place."""
        self._left = {(part, name): part._buffers.get(name) for part, name in self._start}


def _in_place(tensor: torch.Tensor) -> torch.Tensor:
    """Where to write: `.data`, since no graph is to be told that what it saved has changed. A sparse tensor's `.data`
    would be another tensor.
    """
    return tensor.data if tensor.layout is torch.strided else tensor


def _expanded(tensor: torch.Tensor) -> bool:
    """Several elements in one place: torch lets nobody write to those, so there is nothing to rewind."""
    if tensor.layout is not torch.strided:
        return False
    return any(s == 0 and n > 1 for s, n in zip(tensor.stride(), tensor.shape, strict=True))
