"""Builds the notebooks from notebooks/source, the only thing that is edited.

    python notebooks/build.py [--only 01] [--jobs 2] [--timeout 180] [--check]

Each source/NAME.py (jupytext's percent format) becomes NAME.ipynb, where every
solution is replaced by a stub, and solutions/NAME.ipynb, where it is kept. Both
are executed and stored with their outputs; the interview cards are printed into
interview_cards.md. --check executes nothing: it says
whether what is stored is what the sources give, and fit to be compared (see
checks.py).
"""

import argparse
import hashlib
import os
import re
import subprocess
import sys
import tempfile
from base64 import b64decode
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

import jupytext
import nbformat
import psutil
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from nbformat import NotebookNode
from tqdm import tqdm

ROOT = Path(__file__).resolve().parent
BEGIN, END = "### BEGIN SOLUTION", "### END SOLUTION"  # nbgrader's markers
PICTURE = "picture:"
CARDS = "interview_cards.md"  # the interview cards, to print
BESIDE = re.compile(r"\]\((?=[\w./-]+\.md\b)")  # a link to a text that lies beside the learner's notebooks
STUB = "### STUB"  # ours: what follows, uncommented, is the learner's in place of "..."
METADATA = {
    "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},  # no version: it would differ from machine to machine
}


class BuildError(Exception):
    """A source or a run is at fault; the message names the notebook and the cell."""


class Hung(BuildError):
    """A run did not end within its time and was killed."""


# --- From a source to a notebook without outputs --------------------------------------


def split_solutions(source: str, solved: bool) -> tuple[str, int]:
    """A cell's text for the learner or solved, and how many solutions it holds.

    Raises ValueError for markers that do not pair up.
    """
    lines, stub, blocks, part = [], [], 0, None
    for line in source.splitlines():
        mark, indent = line.strip(), line[: len(line) - len(line.lstrip())]
        if mark in (BEGIN, STUB, END):
            if part not in {BEGIN: (None,), STUB: (BEGIN,), END: (BEGIN, STUB)}[mark]:
                raise ValueError(f"'{mark}' where another marker is due")
            if mark == END and not solved:
                lines += stub or [f"{indent}..."]
            part, stub, blocks = (None, [], blocks) if mark == END else (mark, [], blocks + (mark == BEGIN))
        elif any(marker in line for marker in (BEGIN, STUB, END)):
            raise ValueError("a solution marker must stand on a line of its own")
        elif part == STUB:
            if not mark.startswith("#"):
                raise ValueError(f"a stub's lines are comments, '{mark}' is none")
            stub.append(indent + mark[1:].removeprefix(" "))
        elif solved or part is None:
            lines.append(line)
    if part:
        raise ValueError(f"'{BEGIN}' without '{END}'")
    return "\n".join(lines), blocks


def render(name: str, text: str, solved: bool) -> NotebookNode:
    """The notebook of one source, not executed.

    Raises BuildError, naming the source and the cell, where solution markers are
    malformed or disagree with the cell's `solution` tag.
    """
    notebook = jupytext.reads(text, fmt="py:percent")
    notebook.metadata = nbformat.from_dict(METADATA)
    notebook.nbformat, notebook.nbformat_minor = 4, 5  # the first with cell ids
    seen: dict[str, int] = {}
    for number, cell in enumerate(notebook.cells, 1):
        cell.metadata.pop("lines_to_next_cell", None)  # jupytext's own note on blank lines
        # From what the source says, so that an id outlives its cell's moving
        # about and both notebooks share it; a repeated text is told apart by count.
        content = f"{cell.cell_type}\n{cell.source}"
        seen[content] = seen.get(content, 0) + 1
        cell.id = hashlib.sha256(f"{content}\n{seen[content]}".encode()).hexdigest()[:12]
        try:
            cell.source, blocks = split_solutions(cell.source, solved)
        except ValueError as error:
            raise BuildError(f"{name}.py, cell {number}: {error}") from None
        if solved and cell.cell_type == "markdown":  # solutions/ holds notebooks, and nothing else
            cell.source = BESIDE.sub("](../", cell.source)
        tagged = "solution" in cell.metadata.get("tags", [])
        if tagged and not blocks:
            raise BuildError(f"{name}.py, cell {number}: tagged 'solution' but has no markers")
        if blocks and not tagged:
            raise BuildError(f"{name}.py, cell {number}: has solution markers but no such tag")
    return notebook


def tidy(notebook: NotebookNode) -> NotebookNode:
    """The executed notebook less what differs from one run to the next."""
    notebook.metadata = nbformat.from_dict(METADATA)  # the kernel added its version
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        for output in cell.get("outputs", []):
            # A widget's model id is random, and its state went with the metadata: without
            # this, the notebook shows the widget's text until it is run.
            output.get("data", {}).pop("application/vnd.jupyter.widget-view+json", None)
    return notebook


def pictures(notebook: NotebookNode) -> Iterator[tuple[str, bytes]]:
    """The first picture of each cell tagged `picture:NAME`, as NAME and PNG: what the README shows."""
    for cell in notebook.cells:
        for tag in cell.metadata.get("tags", []):
            found = [o.data["image/png"] for o in cell.get("outputs", []) if "image/png" in o.get("data", {})]
            if tag.startswith(PICTURE) and found:
                yield tag.removeprefix(PICTURE), b64decode(found[0])


# --- Execution, in a process of its own ------------------------------------------------


def execute_here(path: Path, folder: Path) -> int:
    """Executes the notebook file in place; the exit status. What the child process does.

    The cell being run is printed, so that the parent can say where a run hung.
    """
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(
        notebook,
        kernel_name="python3",
        resources={"metadata": {"path": str(folder)}},
        timeout=None,  # the parent's clock is the one that counts
        coalesce_streams=True,
        record_timing=False,
        store_widget_state=True,  # nbclient breaks without; tidy() drops the state
    )
    client.on_cell_start = lambda cell, cell_index: print(f"cell {cell_index + 1}", flush=True)
    try:
        client.execute()
    except CellExecutionError as error:
        failed = [cell for cell in notebook.cells if cell.get("execution_count")][-1]
        print(f"{failed.source}\n\n{error.ename}: {error.evalue}")
        return 1
    nbformat.write(notebook, path)
    return 0


def kill_tree(pid: int) -> None:
    """Ends a process and all below it: the kernel leads a process group of its own."""
    try:
        process = psutil.Process(pid)
        family = [*process.children(recursive=True), process]
    except psutil.NoSuchProcess:
        return
    for member in family:
        try:
            member.kill()
        except psutil.NoSuchProcess:
            pass
    psutil.wait_procs(family, timeout=10)


def execute(notebook: NotebookNode, folder: Path, timeout: float) -> NotebookNode:
    """The notebook, executed in `folder` by a kernel of its own.

    Raises BuildError if a cell fails or the kernel dies, Hung after `timeout` seconds.
    """
    with tempfile.TemporaryDirectory() as scratch:
        path, log = Path(scratch, "notebook.ipynb"), Path(scratch, "log")
        nbformat.write(notebook, path)
        # The environment is the user's as it is, but that nobody's own progress
        # is stored, or written. Thread counts in particular are not set: an
        # output that depends on them must not be stored, and a fixed count would
        # only hide it until somebody else runs the lesson.
        with log.open("w") as out:  # not a pipe, which a surviving kernel would keep open
            child = subprocess.Popen(
                [sys.executable, __file__, "--execute", str(path), str(folder)],
                env=os.environ | {"FORWARD_TWICE_PROGRESS": "off"},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
            )
            try:
                status = child.wait(timeout)
            except subprocess.TimeoutExpired:
                last = [line for line in log.read_text().splitlines() if line.startswith("cell ")]
                where = last[-1] if last else "its kernel's start"
                raise Hung(f"did not end within {timeout:g} s: it hung at {where}") from None
            finally:
                if child.poll() is None:  # it hung, or the build was interrupted
                    kill_tree(child.pid)
                    child.wait()
        if status:
            # From the last "cell N" on: where it stopped, and why.
            told = log.read_text()
            raise BuildError(told[max(0, told.rfind("\ncell ")) :].strip())
        return tidy(nbformat.read(path, as_version=4))


# --- The build -------------------------------------------------------------------------


@dataclass(frozen=True)
class Job:
    """One notebook to build."""

    source: Path
    solved: bool

    @property
    def target(self) -> Path:
        """The notebook's file; its folder is where it runs, as under JupyterLab and nbval."""
        folder = self.source.parent.parent
        return (folder / "solutions" if self.solved else folder) / f"{self.source.stem}.ipynb"

    def run(self, timeout: float) -> None:
        """Builds the notebook. The old file stays as it was unless all went well.

        Raises BuildError; a run that hangs is given a second chance (kernels do
        get stuck, rarely, through no fault of the notebook), then Hung is raised.
        """
        notebook = render(self.source.stem, self.source.read_text(encoding="utf-8"), self.solved)
        self.target.parent.mkdir(exist_ok=True)
        try:
            done = execute(notebook, self.target.parent, timeout)
        except Hung:
            done = execute(notebook, self.target.parent, timeout)
        fresh = self.target.with_name(f".{self.target.name}.new")
        nbformat.write(done, fresh)
        os.replace(fresh, self.target)
        if not self.solved:
            images = self.target.parent / "images"
            for name, png in pictures(done):
                images.mkdir(exist_ok=True)
                (images / f"{name}.png").write_bytes(png)


def sources(root: Path = ROOT, only: str = "") -> list[Path]:
    """The lessons' sources, in order; `only` is the beginning of a name."""
    return sorted(p for p in (root / "source").glob("*.py") if p.name.startswith(only))


def build(root: Path = ROOT, only: str = "", jobs: int = 2, timeout: float = 180) -> list[str]:
    """Builds all notebooks, or those of the lessons named by `only`; what went wrong."""
    todo = [Job(source, solved) for source in sources(root, only) for solved in (False, True)]
    if not todo:
        return [f"no source named {only}*.py in {root.name}/source"]
    problems = []
    with ThreadPoolExecutor(jobs) as pool, tqdm(total=len(todo), unit="notebook") as bar:
        pending = {pool.submit(job.run, timeout): job for job in todo}
        for future in as_completed(pending):
            name = pending[future].target.relative_to(root)
            try:
                future.result()
            except BuildError as error:
                problems.append(f"{name}: {error}")
            bar.set_postfix_str(str(name))
            bar.update()
    return sorted(problems)


def print_cards(root: Path = ROOT) -> None:
    """Writes the interview cards, as lesson 09 has them, for reading on paper."""
    from recompute_lab.lessons.cards import load, markdown

    deck = load()
    (root / CARDS).write_text(markdown(deck.cards, deck.topics), encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="the beginning of a lesson's name")
    parser.add_argument("--jobs", type=int, default=2, help="notebooks run side by side")
    parser.add_argument("--timeout", type=float, default=180, help="seconds for one notebook")
    parser.add_argument("--check", action="store_true", help="execute nothing, judge what is there")
    parser.add_argument("--execute", nargs=2, type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.execute:
        return execute_here(*options.execute)
    if options.check:
        import checks

        problems = checks.check_all(ROOT)
    else:
        problems = build(ROOT, options.only, options.jobs, options.timeout)
        print_cards()
    for problem in problems:
        print(f"\n{problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
