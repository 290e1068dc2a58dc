"""The grep: the cheapest search for a branch on a tensor's value, deliberately crude.

It finds lines with `if`, white space, and later a call of one of seven methods with empty
parentheses, directly followed by a colon. It reads text, not Python: comments and strings match as
well, and most ways to branch on a tensor do not. Nothing found means that the cheapest form is
absent, no more. Standard library only; `SHELL` is the same search for a terminal.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

METHODS = ("any", "all", "item", "sum", "mean", "max", "min")
SHELL = (
    "grep -rnE --include='*.py' --exclude-dir='.?*' --exclude-dir=__pycache__ "
    rf"'if[[:space:]].*\.({'|'.join(METHODS)})\(\):' ."
)
# Two steps, since as one pattern a long line with many an "if" takes minutes.
_IF = re.compile(r"if\s", re.ASCII)
_CALL = re.compile(rf"\.({'|'.join(METHODS)})\(\):")
_SHOWN = 200  # characters of a line


@dataclass(frozen=True)
class Hit:
    """One line: its file, as a path relative to the one that was searched, its number, its text."""

    file: str
    line: int
    text: str

    def __str__(self) -> str:
        text = self.text if len(self.text) <= _SHOWN else f"{self.text[:_SHOWN]} ..."
        return f"{self.file}:{self.line}:  {text}"


class Hits(list):
    """The hits, in order of file and line. `files` were searched, `skipped` could not be read."""

    def __init__(self, hits=(), files: int = 0, skipped: tuple[str, ...] = ()):
        super().__init__(hits)
        self.files, self.skipped = files, skipped

    def __str__(self) -> str:
        if not self.files and not self.skipped:
            return "nothing was searched: there are no Python files there"
        said = f"{_number(len(self), 'hit')} in {_number(self.files, 'file')}"
        if self.skipped:
            said += f"; {_number(len(self.skipped), 'path')} skipped, not readable as UTF-8 text"
        return "\n".join([*map(str, self), said])


def matches(line: str) -> bool:
    """True where the grep finds this line."""
    start = _IF.search(line)
    return start is not None and _CALL.search(line, start.end()) is not None


def grep(path: str | os.PathLike) -> Hits:
    """Search a file, or a folder's `*.py` files and those of the folders in it.

    Left out: `__pycache__`, hidden folders, and links that it meets, so that a loop of links ends.
    What cannot be read, or is not UTF-8, is skipped and named in `skipped`.
    Raises FileNotFoundError, with a sentence, where there is no such path.
    """
    try:
        root = Path(path).expanduser()
        there = root.is_file() or root.is_dir()  # a pipe or a device would be read forever
    except (OSError, RuntimeError):  # a name too long, an unknown user's home
        there = False
    if not there:
        raise FileNotFoundError(f"there is no file or folder {str(path)!r} to search")
    hits, files, skipped = [], 0, []
    found, unreadable = _python_files(root) if root.is_dir() else ([root], [])
    for file in found:
        name = file.relative_to(root).as_posix() if file != root else file.name
        try:
            text = file.read_bytes().decode("utf-8-sig")
        except (OSError, UnicodeDecodeError):
            skipped.append(name)
            continue
        files += 1
        lines = enumerate(text.split("\n"), 1)  # as grep counts; splitlines() breaks in more places
        hits += [Hit(name, number, line.strip()) for number, line in lines if matches(line)]
    skipped += [Path(folder).relative_to(root).as_posix() for folder in unreadable]
    return Hits(hits, files, tuple(skipped))


def _python_files(root: Path) -> tuple[list[Path], list[str]]:
    """The folder's Python files, sorted, and the folders that could not be listed."""
    files, unreadable = [], []
    for folder, inner, names in os.walk(root, onerror=lambda e: unreadable.append(e.filename)):
        inner[:] = [name for name in inner if name != "__pycache__" and not name.startswith(".")]
        paths = [Path(folder, name) for name in names if name.endswith(".py")]
        files += [path for path in paths if path.is_file() and not path.is_symlink()]
    return sorted(files), unreadable


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
