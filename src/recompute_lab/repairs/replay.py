"""State is a stream: what a forward reads and then changes has to be rewound for its recomputation, like randomness."""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable

import torch
from torch import nn

_TORCHS_OWN = set(vars(nn.Module()))  # parameters, submodules, hooks, `training`


def state_replayed(module: nn.Module) -> Callable:
    """A `context_fn` in whose recomputation the state of `module` is that of the forward's entry.

    Afterwards it is again what it was before the recomputation. State is the buffers and the attributes of all
    submodules: what each name stands for, and of tensors, lists, dicts, sets and deques what they hold; what hangs on
    other objects is not rewound. So the recomputation reads what the forward read, and what it writes is undone: right
    for state that is only written, and for state that is read, before the write or after. It costs one copy of the
    state per checkpointed call.
    """

    def context_fn():
        entry = _Entry(module)
        return entry, _Rewound(module, entry)

    return context_fn


class _Entry:
    """Takes the state down when the forward begins."""

    def __init__(self, module: nn.Module):
        self._module = module

    def __enter__(self) -> None:
        self.state = _state(self._module)

    def __exit__(self, *error) -> None:
        pass


class _Rewound:
    """Can be entered again, also within itself: backward may run twice, and checkpoints nest."""

    def __init__(self, module: nn.Module, entry: _Entry):
        self._module, self._entry, self._later = module, entry, []

    def __enter__(self) -> None:
        self._later.append(_state(self._module))
        _write(self._entry.state)

    def __exit__(self, *error) -> None:
        _write(self._later.pop())


def _state(module: nn.Module) -> list[tuple[dict, dict, dict]]:
    """Per submodule, its buffers and its attributes: the dict that holds them, its members, and what those hold."""
    holders = [h for part in module.modules() for h in (part._buffers, vars(part))]
    members = [{k: v for k, v in holder.items() if k not in _TORCHS_OWN} for holder in holders]
    return [(h, m, {k: _held(v) for k, v in m.items()}) for h, m in zip(holders, members, strict=True)]


def _held(value):
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    return copy.copy(value) if isinstance(value, list | dict | set | deque) else None


def _write(state: list[tuple[dict, dict, dict]]) -> None:
    for holder, members, held in state:
        for name in holder.keys() - members.keys() - _TORCHS_OWN:
            del holder[name]
        holder.update(members)
        for name, value in members.items():
            if isinstance(value, torch.Tensor):
                if not _expanded(value):
                    _in_place(value).copy_(held[name])
            elif held[name] is not None:
                value.clear()
                (value.extend if isinstance(value, list | deque) else value.update)(held[name])


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
