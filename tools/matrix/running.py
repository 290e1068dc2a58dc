"""One run of the matrix: pytest in an environment under some settings, and what came of it.

A run's result is kept with a digest of all that the run reads, so that a second `make matrix` runs what has changed
and what has failed, and nothing else.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import tempfile
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from xml.etree import ElementTree

from cell_failures import reason, records_of, where
from environments import python_of, seen, settings
from plan import Environment, Run
from processes import Processes

RUN_LIMIT = 3600  # seconds: for a run that hangs where nothing else notices
CELL_LIMIT = 300  # seconds: four threads on two cores are slow
MAX_DETAILS = 6  # lines of what a failing test says
PASSED, FAILED, BROKEN = "passed", "failed", "broken"  # broken: pytest itself did not come to an end

# What a part reads. The stored table is left out: else storing it would make it stale.
READS = {
    "solved": ("src", "notebooks", "requirements.lock", "pyproject.toml"),
    "learner": ("src", "notebooks", "requirements.lock", "pyproject.toml"),
    "unit": (".",),
}
NOT_READ = ("tests/matrix/",)

# The tests of the repository's own tools: they start programs, notebooks and installers, and compute nothing that a
# torch, its kernels or its threads could change. `make test` runs them.
OF_TOOLS = ("builder", "matrix", "reset", "setup", "workshop_check")


def tree(root: Path) -> list[str]:
    """The files of the tree that git tracks or would: not what it ignores, nor what has been deleted."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
    )
    return sorted(name for name in set(listed.stdout.split("\0")) if name and (root / name).is_file())


def digest(root: Path, part: str) -> str:
    """Of all files that a part of the checks can read, names and contents."""
    total = hashlib.sha256()
    for name in tree(root):
        read = any(folder == "." or name == folder or name.startswith(f"{folder}/") for folder in READS[part])
        if read and not name.startswith(NOT_READ):
            total.update(f"{name}\0{hashlib.sha256((root / name).read_bytes()).hexdigest()}\n".encode())
    return total.hexdigest()[:16]


def command(run: Run, python: Path, root: Path, scratch: Path, lessons: str, workers: int) -> list[str]:
    """pytest as `make test` calls it, in another interpreter, told to write down what fails and how."""
    paths = f"{root / 'tools'}|{root / 'notebooks'}"
    begin = "import sys; sys.path[:0] = sys.argv.pop(1).split('|'); import pytest; sys.exit(pytest.main())"
    options = ["-q", "-n", str(workers), "--dist", "loadfile", "-p", "no:cacheprovider", "--color=no"]
    options += [f"--junitxml={scratch / 'tests.xml'}"]
    if run.part == "unit":
        options += ["tests", "--ignore=tests/browser", *(f"--ignore=tests/test_{name}.py" for name in OF_TOOLS)]
    else:
        folder = root / "notebooks" / ("solutions" if run.part == "solved" else "")
        options += ["--nbval", "--nbval-current-env", f"--nbval-cell-timeout={CELL_LIMIT}", "-p", "cell_report"]
        options += [f"--cell-report={scratch / 'cells'}", *map(str, sorted(folder.glob(f"{lessons}*.ipynb")))]
    return [str(python), "-c", begin, paths, *options]


def counts(junit: Path) -> dict[str, int]:
    """How many tests ended how. A known miss (xfail) is one that pytest skips with that type."""
    found = Counter()
    for case in ElementTree.parse(junit).iter("testcase"):
        kinds = {child.tag: child.get("type", "") for child in case}
        if kinds.keys() & {"failure", "error"}:
            found["failed"] += 1
        elif "skipped" in kinds:
            found["known misses" if kinds["skipped"] == "pytest.xfail" else "skipped"] += 1
        else:
            found["passed"] += 1
    return dict(found)


def failed_cells(report: Path, root: Path) -> list[dict]:
    """The first failing cell of each notebook, with what was stored and what came; how many more failed there."""
    by_notebook: dict[str, list[dict]] = {}
    for record in records_of(report):
        if record["outcome"] == "failed":
            by_notebook.setdefault(record["notebook"], []).append(record)
    told = []
    for notebook, records in sorted(by_notebook.items()):
        path = Path(notebook)
        cell, first = where(path, records[0]["cell"])
        what, details = reason(records[0], CELL_LIMIT)
        more = f"; and {len(records) - 1} more" if len(records) > 1 else ""
        name = str(path.relative_to(root / "notebooks"))
        told.append({"where": f"{name}, {cell}{more}", "what": f"{first} {what}", "details": details})
    return told


def failed_tests(junit: Path) -> list[dict]:
    """Each failing unit test, and the lines in which pytest says why."""
    told = []
    for case in ElementTree.parse(junit).iter("testcase"):
        for child in case:
            if child.tag in ("failure", "error"):
                errors = [line[1:].strip() for line in (child.text or "").splitlines() if line.startswith("E  ")]
                what = (child.get("message") or "failed").splitlines()[0]
                details = [line for line in errors if line not in what][:MAX_DETAILS]
                told.append({"where": f"{case.get('classname')}.{case.get('name')}", "what": what, "details": details})
    return told


def carry_out(run: Run, root: Path, cache: Path, processes: Processes, lessons: str, workers: int) -> dict | None:
    """The run's record, for the table; None if it was stopped.

    Raises NoEnvironment if torch does not load there, or does not take the settings.
    """
    python = python_of(run.environment, cache)
    said = seen(run.environment, cache, run.threads, run.kernels)
    env = settings(run.threads, run.kernels)
    env |= {"FORWARD_TWICE_PROGRESS": "off", "OMP_WAIT_POLICY": "PASSIVE", "PYTEST_ADDOPTS": ""}
    before = digest(root, run.part)
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        log, junit = scratch / "log", scratch / "tests.xml"
        status = processes.run(command(run, python, root, scratch, lessons, workers), log, RUN_LIMIT, **env)
        if processes.stopped:
            return None
        whole = status in (0, 1) and junit.exists()
        failures = failed_cells(scratch / "cells", root)
        if whole:
            failures = failures if run.part != "unit" else failed_tests(junit)
        else:
            last = [line for line in log.read_text(errors="replace").splitlines() if line.strip()][-MAX_DETAILS:]
            ended = f"was ended after {RUN_LIMIT} s" if status is None else f"pytest ended with {status}"
            failures += [{"where": run.part, "what": ended, "details": last}]
        tests = counts(junit) if whole else {}
    if whole and status == 1 and not failures:  # a notebook that could not be collected, for one
        failures = [{"where": run.part, "what": "pytest says that a test failed, and not which", "details": []}]
    return {
        "python": run.environment.python,
        "torch": run.environment.torch,
        "threads": run.threads,
        "kernels": run.kernels,
        "part": run.part,
        "status": BROKEN if not whole else PASSED if status == 0 else FAILED,
        "tests": tests,
        "failures": failures,
        "exactly": said["python"],
        "lessons": lessons,
        "digest": before if before == digest(root, run.part) else "changed while it ran",
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
    }


class Kept:
    """The records of runs that have ended, in a file that is only ever added to: a kill loses the run in progress.

    What the stored table has of the same files counts as well, wherever it was run.
    """

    def __init__(self, path: Path, stored: Path):
        self.path, self.stored = path, stored

    def add(self, record: dict) -> None:
        with self.path.open("a", encoding="utf-8") as out:
            out.write(json.dumps(record) + "\n")

    def records(self, root: Path, lessons: str = "") -> dict[Run, dict]:
        """The last record of each run that is of today's tree."""
        digests = {part: digest(root, part) for part in READS}
        stored = json.loads(self.stored.read_text(encoding="utf-8"))["runs"] if self.stored.exists() else []
        found: dict[Run, dict] = {}
        for record in stored + records_of(self.path):
            run = run_of(record)
            if record["digest"] == digests.get(run.part) and record["lessons"] == lessons:
                found[run] = record
        return found


def run_of(record: dict) -> Run:
    """The run that a record is of."""
    environment = Environment(record["python"], record["torch"])
    return Run(environment, record["threads"], record["kernels"], record["part"])
