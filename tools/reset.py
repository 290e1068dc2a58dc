"""Takes the lessons back to unsolved, and keeps what you wrote: `make reset`, or `make reset ONLY=04` for one.

    python tools/reset.py [--only 04] [--notebooks FOLDER]

A notebook whose cells you have changed is first copied to notebooks/my/DATE-TIME/ (UTC; nothing there is ever
overwritten), then put back: from git's last commit, or built anew from notebooks/source where there is no git, or
where the commit holds answers of yours. Of a notebook that was only run, the outputs are put back, without a copy.
What has no source (your own notebooks, everything in my/) is left alone. One line for each notebook says what was
done. Close the notebooks in JupyterLab first: a page that is open would save over what was put back.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SAME, RUN, CHANGED, BROKEN, MISSING = "as it was", "run", "changed", "broken", "missing"

Cells = list[tuple[str, str]]


def cells_of(data: bytes) -> Cells | None:
    """What makes a notebook one's own, each cell's type and text; None if this is no notebook that can be read."""
    try:
        cells = json.loads(data.decode("utf-8"))["cells"]  # JupyterLab opens no other encoding
        return [(cell["cell_type"], "".join(cell["source"])) for cell in cells]
    except (ValueError, KeyError, TypeError):  # half-written, or something else altogether
        return None


def was_saved(data: bytes) -> bool:
    """Whether JupyterLab or another editor has written it: it notes Python's version, which the builder leaves out."""
    try:
        return "version" in json.loads(data)["metadata"]["language_info"]
    except (ValueError, KeyError, TypeError):
        return False


def committed(path: Path) -> bytes | None:
    """The file as git's last commit has it; None without git, outside a checkout, or if it was never committed."""
    try:
        found = subprocess.run(["git", "show", f"HEAD:./{path.name}"], cwd=path.parent, capture_output=True)
    except OSError:  # no git, or no such folder
        return None
    return found.stdout if found.returncode == 0 else None


def rendered(source: Path, solved: bool) -> Cells | None:
    """The cells that the source gives; None if the builder's packages are not installed."""
    sys.path.insert(0, str(ROOT / "notebooks"))
    try:
        from build import render
    except ImportError:
        return None
    finally:
        sys.path.pop(0)
    notebook = render(source.stem, source.read_text(encoding="utf-8"), solved)
    return [(cell.cell_type, cell.source) for cell in notebook.cells]


@dataclass(frozen=True)
class Lesson:
    """One notebook of a lesson, the learner's or the solved one."""

    source: Path
    solved: bool = False

    @property
    def path(self) -> Path:
        folder = self.source.parent.parent
        return (folder / "solutions" if self.solved else folder) / f"{self.source.stem}.ipynb"

    @property
    def name(self) -> str:
        return f"solutions/{self.path.name}" if self.solved else self.path.name

    def pristine(self) -> bytes | None:
        """The committed file, if that is what the source gives."""
        data = committed(self.path)
        if data is None:
            return None
        expected = rendered(self.source, self.solved)
        return data if expected is None or cells_of(data) == expected else None

    def expected(self) -> Cells | None:
        """The unchanged notebook's cells."""
        expected = rendered(self.source, self.solved)
        data = committed(self.path) if expected is None else None
        return cells_of(data) if data is not None else expected

    def state(self) -> str:
        """SAME, RUN (its outputs differ), CHANGED (its cells do), BROKEN (no notebook any more) or MISSING.

        Raises RuntimeError if there is neither git nor the builder's packages to compare with.
        """
        if not self.path.exists():
            return MISSING
        if not self.path.is_file():
            return BROKEN
        data, expected = self.path.read_bytes(), self.expected()
        if expected is None:
            raise RuntimeError(
                f"{self.name}: nothing to compare it with, since it is in no commit, and jupytext is not installed: "
                "type 'make setup'"
            )
        cells = cells_of(data)
        if cells != expected:
            return BROKEN if cells is None else CHANGED
        pristine = self.pristine()
        return SAME if data == pristine or pristine is None and not was_saved(data) else RUN

    def changes(self) -> list[int]:
        """Which cells differ from the unchanged ones, counted from 1; cells too many or too few are counted, too."""
        mine, expected = cells_of(self.path.read_bytes()) or [], self.expected() or []
        both = range(max(len(mine), len(expected)))
        return [n + 1 for n in both if mine[n : n + 1] != expected[n : n + 1]]


def lessons(notebooks: Path, only: str = "") -> list[Lesson]:
    """All notebooks that have a source, the learner's and the solved one of each.

    `only` is the beginning of a name; a number below ten is that lesson's, so that 1 is 01, not 10.
    """
    only = only.zfill(2) if only.isdecimal() else only
    found = sorted(p for p in (notebooks / "source").glob("*.py") if p.name.startswith(only))
    return [Lesson(source, solved) for source in found for solved in (False, True)]


def build(lesson: Lesson) -> None:
    """Builds the notebook from its source, executed.

    Raises RuntimeError, with a sentence, if that cannot be done.
    """
    sys.path.insert(0, str(ROOT / "notebooks"))
    try:
        from build import BuildError, Job
    except ImportError as error:
        raise RuntimeError(f"it has to be built anew, and {error.name} is not installed: type 'make setup'") from None
    finally:
        sys.path.pop(0)
    try:
        Job(lesson.source, lesson.solved).run(timeout=600)
    except BuildError as error:
        raise RuntimeError(f"building it anew failed: {error}") from None


class Copies:
    """A folder for this reset's copies, made when the first one is kept."""

    def __init__(self, notebooks: Path, now: datetime):
        self.parent, self.stamp, self.folder = notebooks / "my", now.strftime("%Y-%m-%dT%H-%M-%SZ"), None

    def keep(self, lesson: Lesson) -> Path:
        """Copies the notebook, as it is; where to. Two resets in one second get a folder each."""
        number = 1
        while self.folder is None:
            folder = self.parent / (self.stamp if number == 1 else f"{self.stamp}-{number}")
            try:
                folder.mkdir(parents=True)
                self.folder = folder
            except FileExistsError:
                number += 1
        target = self.folder / lesson.name
        target.parent.mkdir(exist_ok=True)
        shutil.copy2(lesson.path, target)
        return target


def put(path: Path, data: bytes) -> None:
    """Writes all of the file or nothing of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.new")
    try:
        fresh.write_bytes(data)
        os.replace(fresh, path)
    finally:
        fresh.unlink(missing_ok=True)  # on a full disk: half a file that nobody asked for


def reset(
    notebooks: Path, only: str = "", now: datetime | None = None, build: Callable[[Lesson], None] = build
) -> Iterator[tuple[str, bool]]:
    """Puts the notebooks back, one after the other; for each a line, and whether all went well.

    Raises ValueError if `only` names no lesson.
    """
    todo, copies = lessons(notebooks, only), Copies(notebooks, now or datetime.now(UTC))
    if not todo:
        raise ValueError(f"no lesson's name begins with '{only}': try ONLY=04, or no ONLY for all of them")
    for lesson in todo:
        try:
            yield _reset_one(lesson, copies, build), True
        except (RuntimeError, OSError) as error:
            yield f"{lesson.name}: NOT reset: {error}", False


def _reset_one(lesson: Lesson, copies: Copies, build: Callable[[Lesson], None]) -> str:
    state = lesson.state()
    if state == SAME:
        return f"{lesson.name}: as it was"
    told = {
        RUN: "was run, its cells are unchanged (no copy)",
        MISSING: "was not there",
        CHANGED: "changed",
        BROKEN: "cannot be read as a notebook",
    }[state]
    if state in (CHANGED, BROKEN):
        kept = copies.keep(lesson)
        told += f", yours is kept as {kept.relative_to(copies.parent.parent.parent).as_posix()}"
    data = lesson.pristine()
    if data is None:
        build(lesson)
        return f"{lesson.name}: {told}; built anew from source/{lesson.source.name}"
    put(lesson.path, data)
    return f"{lesson.name}: {told}; put back from git's last commit"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="the beginning of a lesson's name")
    parser.add_argument("--notebooks", type=Path, default=ROOT / "notebooks", help="the folder with source/ in it")
    options = parser.parse_args()
    well = True
    try:
        for line, right in reset(options.notebooks.resolve(), options.only):
            print(line, flush=True)
            well = well and right
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("Interrupted: what stands above is done, the rest is as it was.", file=sys.stderr)
        return 130
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
