"""Ctrl-C, where it would cut in two what must be whole."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.overrides import _get_current_function_mode_stack, _pop_mode


class uninterrupted:
    """`with uninterrupted():` an interrupt that comes inside waits until the end, and is raised there.

    For what is short and must be whole: an attribute dict that is emptied and filled again is no place to stop.
    Python interrupts the main thread alone; in others nothing is done.
    """

    def __enter__(self) -> None:
        self._handler, self._came = None, False
        try:
            self._hold()
        except KeyboardInterrupt:  # a moment too early: it can wait as well
            self._came = True
            self._hold()

    def _hold(self) -> None:
        handler = signal.getsignal(signal.SIGINT)
        if handler is None:  # not Python's, which could not put it back
            return
        try:
            signal.signal(signal.SIGINT, self._wait)
            self._handler = handler
        except ValueError:  # in another thread
            pass

    def _wait(self, *_) -> None:
        self._came = True

    def __exit__(self, *error) -> None:
        if self._handler is not None:
            signal.signal(signal.SIGINT, self._handler)
        if self._came:
            signal.raise_signal(signal.SIGINT)


@contextmanager
def stacks_kept() -> Iterator[None]:
    """Afterwards, no more modes and hooks on saved tensors lie on torch's stacks than before.

    A `with` of torch's takes its own off; but an interrupt may fall between its last line and that.
    """
    modes, hooks = len(_get_current_function_mode_stack()), _top_hooks()
    try:
        yield
    finally:
        with uninterrupted():
            while len(_get_current_function_mode_stack()) > modes:
                _pop_mode()
            while _top_hooks() not in (hooks, None):
                torch._C._autograd._pop_saved_tensors_default_hooks()


def _top_hooks() -> tuple | None:
    """The innermost pair of hooks on saved tensors; None also where torch does not say (before 2.7)."""
    look = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", None)
    return look and look(True)
