"""Child processes that a tool runs side by side, all of which an interruption ends, with everything below them."""

from __future__ import annotations

import os
import subprocess
import threading
from pathlib import Path

from build import kill_tree


class Processes:
    """Runs commands side by side; `stop` ends all that run, with everything below them, and lets none begin."""

    def __init__(self, cwd: Path):
        self.cwd = cwd
        self._lock, self._running, self.stopped = threading.Lock(), set(), False

    def run(self, command: list[str], log: Path, limit: float, **env: str) -> int | None:
        """The exit status; None if it had to be ended after `limit` seconds, or was stopped."""
        with self._lock:
            if self.stopped:
                return None
            with log.open("w") as out:
                child = subprocess.Popen(
                    command,
                    cwd=self.cwd,
                    env=os.environ | env,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,  # Ctrl+C comes here alone, and this ends the rest in order
                )
            self._running.add(child)
        try:
            return child.wait(limit)
        except subprocess.TimeoutExpired:
            kill_tree(child.pid)
            child.wait()
            return None
        except BaseException:  # interrupted here, in the main thread
            kill_tree(child.pid)
            child.wait()
            raise
        finally:
            with self._lock:
                self._running.discard(child)

    def stop(self) -> None:
        with self._lock:
            self.stopped, running = True, list(self._running)
        for child in running:
            kill_tree(child.pid)
