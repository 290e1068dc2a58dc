"""Find the files, and read each as text: scripts, and the code cells of notebooks.

Nothing is imported or run. What cannot be read costs one line in the result, and the rest is audited.
"""

from __future__ import annotations

import ast
import fnmatch
import io
import json
import os
import re
import tokenize
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

LARGEST = 8_000_000  # bytes; what is longer was written by a program
SKIPPED_FOLDERS = frozenset(("__pycache__", "node_modules", "site-packages"))
_MAGIC = re.compile(r"\s*[%!?]|\s*[\w.]+\?\??\s*$|\s*[\w, ]+=\s*[%!]")
_CELL_MAGICS_OF_PYTHON = ("%%time", "%%timeit", "%%capture", "%%prun")


class Unreadable(Exception):
    """With a sentence that says why."""


@dataclass(frozen=True)
class Source:
    """`cells`: for each line of the text, the notebook's cell (from 1) and the line in it; None for a script."""

    text: str
    cells: list[tuple[int, int]] | None = None
    notes: tuple[str, ...] = ()


def find(paths: Iterable[str | os.PathLike], exclude: Iterable[str] = ()) -> tuple[list[Path], list[str], list[str]]:
    """The files, each once, those of a folder sorted; notes on what cannot be listed; and the paths that are not there.

    Folders: `*.py` and `*.ipynb`; hidden ones, virtual environments, `__pycache__`, and links to folders are left out.
    A file that is named is taken whatever it is called. `exclude`: shell patterns for a path, a folder's or
    a file's name.
    """
    exclude = tuple(exclude)
    files: dict[Path, None] = {}
    notes, missing = [], []
    for given in paths:
        path = Path(given).expanduser() if str(given).startswith("~") else Path(given)
        try:
            is_folder, is_file = path.is_dir(), path.is_file()
        except OSError:
            is_folder = is_file = False
        if not os.fspath(given):  # `audit "$NOTHING"` is not the folder one stands in
            missing.append("")
            continue
        if is_folder:
            found, unreadable = _walk(path, exclude)
            notes += [f"{_shown(folder)}: this folder cannot be listed" for folder in unreadable]
        elif is_file:
            found = [path]
        elif path.exists():
            notes.append(f"{_shown(path)}: neither a file nor a folder")
            continue
        else:
            missing.append(_shown(path))
            continue
        for file in found:
            if not _excluded(file, path, exclude):
                files.setdefault(file)
    seen, unique = set(), []
    for file in files:
        try:
            key = file.resolve()
        except (OSError, RuntimeError):
            key = file
        if key not in seen:
            seen.add(key)
            unique.append(file)
    return unique, notes, missing


def _walk(root: Path, exclude: tuple[str, ...]) -> tuple[list[Path], list[str]]:
    files, unreadable = [], []
    for folder, inner, names in os.walk(root, onerror=lambda error: unreadable.append(error.filename)):
        inner[:] = sorted(
            n for n in inner if _wanted(n, Path(folder, n)) and not _excluded(Path(folder, n), root, exclude)
        )
        for name in sorted(names):
            path = Path(folder, name)
            if name.endswith((".py", ".ipynb")) and not name.startswith(".") and path.is_file():
                files.append(path)
    return files, unreadable


def _wanted(name: str, path: Path) -> bool:
    return not name.startswith(".") and name not in SKIPPED_FOLDERS and not (path / "pyvenv.cfg").exists()


def _excluded(path: Path, root: Path, patterns: tuple[str, ...]) -> bool:
    if not patterns:
        return False
    relative = path.relative_to(root).as_posix() if path != root else path.name
    whole = path.as_posix()
    return any(
        fnmatch.fnmatch(name, pattern.rstrip("/")) for pattern in patterns for name in (relative, path.name, whole)
    )


def read(path: Path) -> Source:
    """Raises Unreadable, with a sentence."""
    try:
        if path.stat().st_size > LARGEST:
            raise Unreadable(f"left out: more than {LARGEST // 1_000_000} MB")
        data = path.read_bytes()
    except OSError as error:
        raise Unreadable(f"cannot be read: {error.strerror or error}") from None
    if path.suffix == ".ipynb":
        return _notebook(data)
    return Source(decoded(data))


def decoded(data: bytes) -> str:
    """As Python would read it: UTF-8, or what the file's first lines declare."""
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        text = data.decode(encoding)
    except (SyntaxError, UnicodeDecodeError, LookupError):
        raise Unreadable("not text in UTF-8, nor in an encoding that it declares") from None
    if "\0" in text:
        raise Unreadable("not text: it contains null bytes")
    return _lines(text)


def _lines(text: str) -> str:
    """Lines end as Python's parser counts them."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _parses(lines: list[str]) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse("\n".join(lines))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def _notebook(data: bytes) -> Source:
    try:
        notebook = json.loads(decoded(data))
        language = notebook.get("metadata", {}).get("language_info", {}).get("name", "python")
        cells = notebook["cells"]
        if not isinstance(cells, list):
            raise ValueError
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise Unreadable("not a notebook: not the JSON of one") from None
    if language != "python":
        raise Unreadable(f"a notebook in {language}, not in Python")
    lines: list[str] = []
    where: list[tuple[int, int]] = []
    notes = []
    for number, cell in enumerate(cells, 1):
        if not isinstance(cell, dict) or cell.get("cell_type") != "code":
            continue
        source = cell.get("source", "")
        text = _lines("".join(map(str, source)) if isinstance(source, list) else str(source))
        of_cell = text.split("\n")
        if not _parses(of_cell):
            of_cell = _without_magics(of_cell)
            if not _parses(of_cell):
                notes.append(f"cell {number} is not Python that can be parsed")
                continue
        lines += of_cell
        where += [(number, line) for line in range(1, len(of_cell) + 1)]
    return Source("\n".join(lines), where, tuple(notes))


def _without_magics(lines: list[str]) -> list[str]:
    """A cell without what IPython alone understands, line by line."""
    if lines and lines[0].startswith("%%"):
        lines = ["", *lines[1:]] if lines[0].startswith(_CELL_MAGICS_OF_PYTHON) else [""] * len(lines)
    return [f"{line[: len(line) - len(line.lstrip())]}pass" if _MAGIC.match(line) else line for line in lines]


def _shown(path: str | os.PathLike) -> str:
    return os.fspath(path).encode("utf-8", "backslashreplace").decode()
