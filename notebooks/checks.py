"""What must hold of the stored notebooks, found out without executing them.

nbval reruns every cell and compares it with what is stored, but it compares
nothing where nothing is stored, and says nothing of a notebook that no longer
is what its source gives. These checks do. Each returns a list of problems, in
words that name the notebook and the cell (counted from 1, Markdown included).
"""

import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

import nbformat
from build import BuildError, pictures, render, sources
from nbformat import NotebookNode

MAX_CELLS = 40
MAX_CELLS_EXCEPT = "10_"  # the coding drills: many, each on its own
MAX_LINES = 15
MAX_COLUMNS = 96  # what JupyterLab shows without scrolling, its file browser open, on a small screen
MAX_DIGITS = 4

# Code that Markdown shows, with the file that it stands in: "# recompute_lab/specimens/draws.py", then the lines.
QUOTE = re.compile(r"^```python\n# (recompute_lab/\S+\.py)\b[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
MAX_QUOTED_COLUMNS = 88  # Markdown's code has a margin

IGNORE = "nbval-ignore-output"
# Everything else that stops nbval from running or comparing a cell.
FORBIDDEN_TAGS = {"nbval-skip", "nbval-raises-exception", "raises-exception", "nbval-check-output"}
FORBIDDEN_SOURCE = re.compile(r"#\s*(NBVAL_|PYTEST_VALIDATE_)\w*")

# What must stand in no stored output at all: it is true of one machine or one run.
FORBIDDEN_OUTPUT = {
    "an absolute path": re.compile(
        r"(?<![\w./<])/(home|tmp|Users|root|opt|usr|var|private|mnt|srv|workspaces?|content)/\w"
        r"|\b[A-Za-z]:\\\w"
    ),
    "an object's address": re.compile(r"\b0x[0-9a-fA-F]+"),
    "a warning": re.compile(r"Warning:"),
}
VERSION = re.compile(r"(?<![\w.])\d+\.\d+\.\d+")
DECIMAL = re.compile(r"(?<![\w.])(?:\d{1,3}(?:,\d{3})+|\d+)\.(?P<fraction>\d+)")


def text_of(cell: NotebookNode) -> str:
    """All that a cell's outputs say in words; pictures, which nbval does not compare, are not."""
    parts = []
    for output in cell.get("outputs", []):
        parts.append(output.get("text", ""))
        for mime, value in output.get("data", {}).items():
            if mime not in ("image/png", "image/jpeg"):
                parts.append(value if isinstance(value, str) else repr(value))
    return "\n".join(parts)


def long_decimals(text: str) -> Iterator[str]:
    """Numbers of more digits than every machine's arithmetic agrees on. 4096.0 is none."""
    for match in DECIMAL.finditer(text):
        digits = re.sub(r"[.,]", "", match[0]).lstrip("0")
        if len(digits) > MAX_DIGITS and match["fraction"].strip("0"):
            yield match[0]


def numbered(name: str, notebook: NotebookNode) -> Iterator[tuple[str, NotebookNode]]:
    for number, cell in enumerate(notebook.cells, 1):
        yield f"{name} cell {number}", cell


def is_ignored(cell: NotebookNode) -> bool:
    return IGNORE in cell.metadata.get("tags", [])


def check_same(name: str, expected: NotebookNode, stored: NotebookNode) -> list[str]:
    """The stored cells are those that the source gives."""
    problems = []
    for (where, cell), wanted in zip(numbered(name, stored), expected.cells, strict=False):
        for part in ("cell_type", "source", "id"):
            if cell.get(part) != wanted[part]:
                problems.append(f"{where}: its {part} is not what the source gives")
        if cell.metadata != wanted.metadata:
            problems.append(f"{where}: its tags or metadata are not what the source gives")
    if len(stored.cells) != len(expected.cells):
        problems.append(f"{name}: {len(stored.cells)} cells, the source has {len(expected.cells)}")
    if stored.metadata != expected.metadata:
        problems.append(f"{name}: its metadata are not what the builder writes")
    return problems


def check_executed(name: str, notebook: NotebookNode) -> list[str]:
    """Every code cell was run, once, from top to bottom."""
    problems, count = [], 0
    for where, cell in numbered(name, notebook):
        if cell.cell_type != "code" or not cell.source.strip():
            continue
        count += 1
        if cell.execution_count != count:
            problems.append(f"{where}: execution count {cell.execution_count}, not {count}")
    return problems


def check_outputs(name: str, notebook: NotebookNode) -> list[str]:
    """No output is of one machine only, and what is compared holds on all of them."""
    problems = []
    for where, cell in numbered(name, notebook):
        for output in cell.get("outputs", []):
            if output.output_type == "error":
                problems.append(f"{where}: an error, {output.ename}")
            if output.get("name") == "stderr":
                problems.append(f"{where}: output on stderr (a warning?)")
        text = text_of(cell)
        for what, pattern in FORBIDDEN_OUTPUT.items():
            if match := pattern.search(text):
                problems.append(f"{where}: {what} in its output, '{match[0]}'")
        if is_ignored(cell):
            continue
        if match := VERSION.search(text):
            problems.append(f"{where}: a version in a compared output, '{match[0]}'")
        for number in long_decimals(VERSION.sub("", text)):
            problems.append(f"{where}: more than {MAX_DIGITS} digits compared, '{number}'")
    return problems


def check_ignored(name: str, notebook: NotebookNode) -> list[str]:
    """Cells are hidden from nbval in one way only, each followed by one that is compared."""
    problems = []
    code = [item for item in numbered(name, notebook) if item[1].cell_type == "code"]
    for (where, cell), (_, after) in zip(code, code[1:] + [("", None)], strict=True):
        if bad := FORBIDDEN_TAGS.intersection(cell.metadata.get("tags", [])):
            problems.append(f"{where}: the tag '{min(bad)}' is not allowed")
        if match := FORBIDDEN_SOURCE.search(cell.source):
            problems.append(f"{where}: the comment '{match[0]}' is not allowed")
        if is_ignored(cell):
            said = "" if after is None else re.sub(r"<Figure.*?>", "", text_of(after)).strip()
            if after is None or is_ignored(after) or not said:
                problems.append(f"{where}: tagged '{IGNORE}', but the next one compares no text")
    return problems


def check_size(name: str, notebook: NotebookNode) -> list[str]:
    """A lesson fits an hour and a cell fits a screen."""
    problems = []
    if len(notebook.cells) > MAX_CELLS and not Path(name).name.startswith(MAX_CELLS_EXCEPT):
        problems.append(f"{name}: {len(notebook.cells)} cells, at most {MAX_CELLS} are allowed")
    for where, cell in numbered(name, notebook):
        lines = len(cell.source.splitlines())
        if cell.cell_type == "code" and lines > MAX_LINES:
            problems.append(f"{where}: {lines} lines of code, at most {MAX_LINES} are allowed")
        longest = max(map(len, cell.source.splitlines()), default=0)
        if cell.cell_type == "code" and longest > MAX_COLUMNS:
            problems.append(f"{where}: {longest} columns of code, at most {MAX_COLUMNS} are allowed")
    return problems


def quoted(cell: NotebookNode) -> Iterator[tuple[str, list[str]]]:
    """The quotes in a Markdown cell: the file, and the pieces. A blank line, or a comment at the margin, parts them."""
    for path, code in QUOTE.findall(cell.source):
        yield path, [piece for piece in re.split(r"(?m)^(?:#.*)?\n", code) if piece.strip()]


def check_quotes(root: Path, name: str, notebook: NotebookNode) -> list[str]:
    """What Markdown quotes of the package stands in the package, line for line, whatever its indentation there."""
    problems = []
    for where, cell in numbered(name, notebook):
        for path, pieces in quoted(cell) if cell.cell_type == "markdown" else ():
            file = root.parent / "src" / path
            if not file.is_file():
                problems.append(f"{where}: quotes {path}, which is not there")
                continue
            text = file.read_text(encoding="utf-8")
            for piece in pieces:
                first = piece.splitlines()[0].strip()
                if not any("\n" + textwrap.indent(piece, " " * 4 * depth) in text for depth in range(4)):
                    problems.append(f"{where}: the lines from '{first}' are not in {path}")
                if max(map(len, piece.splitlines())) > MAX_QUOTED_COLUMNS:
                    problems.append(f"{where}: the lines from '{first}' are longer than {MAX_QUOTED_COLUMNS} columns")
    return problems


def check_notebook(name: str, expected: NotebookNode, stored: NotebookNode) -> list[str]:
    """All of the checks, on one notebook: as its source gives it, and as it is stored."""
    problems = check_same(name, expected, stored)
    for check in (check_executed, check_outputs, check_ignored, check_size):
        problems += check(name, stored)
    return problems


def check_lesson(root: Path, source: Path) -> list[str]:
    """All of the checks, on the two notebooks of one source."""
    problems, both = [], []
    for solved, folder in ((False, "."), (True, "solutions")):
        path = root / folder / f"{source.stem}.ipynb"
        name = path.relative_to(root).as_posix()
        try:
            expected = render(source.stem, source.read_text(encoding="utf-8"), solved)
            stored = nbformat.read(path, as_version=4)
        except BuildError as error:
            problems.append(str(error))
        except FileNotFoundError:
            problems.append(f"{name}: not there, run make notebooks")
        else:
            problems += check_notebook(name, expected, stored)
            problems += check_quotes(root, name, stored)
            both.append(stored)
            if not solved:
                problems += check_pictures(root, name, stored)
    if len(both) == 2:
        problems += check_independent(f"{source.stem}.ipynb", *both)
    return problems


def check_independent(name: str, learner: NotebookNode, solved: NotebookNode) -> list[str]:
    """What a cell prints does not depend on the learner's answers, so an unsolved notebook tells the same story."""
    problems = []
    for (where, cell), other in zip(numbered(name, learner), solved.cells, strict=False):
        exercise = "solution" in cell.metadata.get("tags", [])
        if not exercise and not is_ignored(cell) and text_of(cell) != text_of(other):
            problems.append(f"{where}: prints something else where the exercises are solved")
    return problems


def check_pictures(root: Path, name: str, notebook: NotebookNode) -> list[str]:
    """The pictures that stand beside the notebooks are the ones in them."""
    problems = []
    for picture, png in pictures(notebook):
        path = root / "images" / f"{picture}.png"
        if not path.exists() or path.read_bytes() != png:
            problems.append(f"{name}: images/{path.name} is not the picture in the notebook, run make notebooks")
    return problems


def check_all(root: Path) -> list[str]:
    """All of the checks, on all lessons; no lesson at all is a problem too."""
    lessons = sources(root)
    problems = [problem for source in lessons for problem in check_lesson(root, source)]
    if not lessons:
        problems.append(f"there is no lesson in {root.name}/source")
    known = {source.stem for source in lessons}
    for path in sorted([*root.glob("*.ipynb"), *root.glob("solutions/*.ipynb")]):
        if path.stem not in known:
            problems.append(f"{path.relative_to(root).as_posix()}: has no source")
    return problems
