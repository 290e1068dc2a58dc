"""What Ctrl-C must not cut in two: putting back what somebody's code has changed."""

from __future__ import annotations

import signal
import threading


class uninterrupted:
    """`with uninterrupted():` an interrupt that comes inside waits until the end, and is raised there.

    For what is short and must be whole: an attribute dict that is emptied and filled again is no place to stop.
    Python interrupts the main thread alone; in others, and where interrupts are not Python's to handle, nothing is done.
    """

    def __enter__(self) -> None:
        self._handler, self._came = None, False
        if threading.current_thread() is not threading.main_thread():
            return
        try:
            handler = signal.getsignal(signal.SIGINT)
            if callable(handler):  # the two that are not: ignored, and the end of the process
                self._handler = handler
                signal.signal(signal.SIGINT, self._wait)
        except KeyboardInterrupt:  # a moment too early: it can wait as well
            self._came = True
            self._handler = handler
            signal.signal(signal.SIGINT, self._wait)

    def _wait(self, *_) -> None:
        self._came = True

    def __exit__(self, *error) -> None:
        if self._handler is None:
            return
        signal.signal(signal.SIGINT, self._handler)
        if self._came:
            signal.raise_signal(signal.SIGINT)
