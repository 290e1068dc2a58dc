"""Is this machine ready for tomorrow's workshop? `make workshop-check`, the evening before.

    python tools/workshop_check.py [--pattern 01*] [--page FILE] [--port 8888] [--jobs 2] [--timeout 120]
                                   [--notebooks FOLDER] [--no-browser]

Runs every notebook, the learner's and the solved ones, and compares each output that is not marked as the machine's own
with what is stored (nbval, strict). Looks at versions, threads, memory, disk, folder and port, and moves a panel in a
browser by keyboard. Prints one page, of at most 60 lines and 100 columns. Exits 0 if all is ready, 1 if something is
not (the page names the notebook and the cell), 130 if interrupted. What could not be checked, or is only worth a look,
is said and fails nothing. No notebook is written.
"""

from __future__ import annotations

import argparse
import fnmatch
import os
import platform
import re
import shutil
import signal
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
for folder in ("tools", "notebooks", "tests/browser"):
    sys.path.insert(0, str(ROOT / folder))

try:
    import chromium
    import nbval  # noqa: F401
    import psutil
    import pytest  # noqa: F401
    import reset
    import torch
    from cell_failures import reason, records_of, where
    from packaging.specifiers import SpecifierSet
    from port import trouble
    from processes import Processes
    from tqdm import tqdm
except ModuleNotFoundError as missing:
    sys.exit(
        f"{missing.name} is not installed in this Python: type 'make workshop-check', which installs what it needs."
    )

MAX_LINES, MAX_COLUMNS, MAX_DETAILS = 60, 100, 4
WATCHED = ("torch", "jupyterlab", "ipywidgets")
NOTEBOOK_LIMIT = 900  # seconds, for one that hangs where nbval cannot interrupt it
LITTLE_MEMORY, LITTLE_DISK = 2e9, 2e9  # bytes: two notebooks side by side hold up to three quarters of the first
A_PANEL = "tests/browser/test_panels.py::test_a_burst_of_keys_leaves_no_pictures_waiting"
# pytest with this project's settings, and its tools on the path: not by PYTHONPATH, which the kernels would inherit.
PYTEST = [
    sys.executable,
    "-c",
    "import sys; sys.path[:0] = sys.argv.pop(1).split('|'); import pytest; sys.exit(pytest.main())",
    f"{ROOT / 'tools'}|{ROOT / 'notebooks'}",
    *("-c", str(ROOT / "pyproject.toml")),
]
OK, LOOK, BAD, NOT_CHECKED = "ok", "look", "FAIL", "----"


@dataclass(frozen=True)
class Line:
    """One thing that was looked at: a status, what it was, and up to four lines of details."""

    status: str
    text: str
    details: list[str] = field(default_factory=list)


# --- The notebooks ---------------------------------------------------------------------


def judged(
    path: Path, records: list[dict], status: int | None, log: str, timeout: float
) -> tuple[str, list[str]] | None:
    """What is wrong with a notebook, in a few words, and details; None if nothing is."""
    failed = [record for record in records if record["outcome"] == "failed"]
    if failed:
        cell, first = where(path, failed[0]["cell"])
        what, details = reason(failed[0], timeout)
        return cell + (f"; and {len(failed) - 1} more" if len(failed) > 1 else ""), [f"{first} {what}", *details]
    if status is None:
        cell, first = where(path, records[-1]["cell"]) if records else ("its kernel's start", "")
        return f"hung at {cell}", [f"{first} was ended after {NOTEBOOK_LIMIT} s"]
    if status != 0 or not any(record["outcome"] == "passed" for record in records):
        return "could not be run", [line for line in log.splitlines() if line.strip()][-MAX_DETAILS:]
    return None


def check_notebook(lesson: reset.Lesson, processes: Processes, timeout: float) -> Line:
    """Runs one notebook under nbval, in a process of its own."""
    name, again = f"{lesson.name:<36}", f"'make reset ONLY={lesson.source.name[:2]}'"
    state = lesson.state()
    if state in (reset.MISSING, reset.BROKEN):
        said = "is not there" if state == reset.MISSING else "is unreadable"
        return Line(BAD, f"    -    {name}  {said}: {again}")
    with tempfile.TemporaryDirectory() as scratch:
        report, log, start = Path(scratch, "cells"), Path(scratch, "log"), time.monotonic()
        options = ["-q", "-p", "no:cacheprovider", "-p", "cell_report", f"--cell-report={report}"]
        options += ["--nbval", "--nbval-current-env", f"--nbval-cell-timeout={timeout:g}", str(lesson.path)]
        status = processes.run(PYTEST + options, log, NOTEBOOK_LIMIT, PYTEST_ADDOPTS="")
        took = time.monotonic() - start
        wrong = judged(lesson.path, records_of(report), status, log.read_text(errors="replace"), timeout)
    head = f"{took:5.1f} s  {name} "
    if state == reset.CHANGED:
        told = f"{head} changed: {again}, cells {', '.join(map(str, lesson.changes()))}"
        return Line(BAD, told, [wrong[0], *wrong[1]][:MAX_DETAILS]) if wrong else Line(LOOK, told)
    if wrong:
        run = [f"it was run here: {again} puts the stored outputs back"] * (state == reset.RUN)
        return Line(BAD, f"{head} {wrong[0]}", [*run, *wrong[1]][:MAX_DETAILS])
    return Line(LOOK, f"{head} was run here: its outputs are those") if state == reset.RUN else Line(OK, head.rstrip())


def check_notebooks(
    todo: list[reset.Lesson],
    processes: Processes,
    jobs: int,
    timeout: float,
    done: Callable[[reset.Lesson], None] = lambda lesson: None,
) -> list[Line]:
    """So many side by side; `done` is told of each as it ends. The lines are in the order of `todo`."""
    found: dict[reset.Lesson, Line] = {}
    with ThreadPoolExecutor(jobs) as pool:
        pending = {pool.submit(check_notebook, lesson, processes, timeout): lesson for lesson in todo}
        try:
            for future in as_completed(pending):
                found[pending[future]] = future.result()
                done(pending[future])
        except BaseException:
            processes.stop()
            pool.shutdown(cancel_futures=True)
            raise
    return [found[lesson] for lesson in todo]


# --- The machine -----------------------------------------------------------------------


def versions() -> Line:
    """Python against pyproject.toml, packages against requirements.lock."""
    lock = dict(re.findall(r"^([\w.-]+)==([^\s;]+)", (ROOT / "requirements.lock").read_text(), re.MULTILINE))
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"]
    here, told, others = platform.python_version(), [], []
    if not SpecifierSet(wanted).contains(here):
        others.append(f"Python {here} (needed: {wanted})")
    for name in WATCHED:
        try:
            installed = version(name)
        except PackageNotFoundError:
            others.append(f"{name} is not installed")
            continue
        told.append(f"{name} {installed}")
        if installed.partition("+")[0] != lock[name]:
            others.append(f"{name} {installed} (locked: {lock[name]})")
    text = f"Python {here}, {', '.join(told)}"
    return Line(LOOK, f"{text}; other than locked: {', '.join(others)}") if others else Line(OK, f"{text}: as locked")


def machine(folder: Path) -> list[Line]:
    """Threads, kernels, memory, disk."""
    threads = torch.get_num_threads()
    races = "with two or more, the races of lessons 01, 02, 07 are real" if threads > 1 else "so no additions race here"
    kernels = torch.backends.cpu.get_cpu_capability()
    memory, disk = psutil.virtual_memory(), shutil.disk_usage(folder)
    little = [
        name
        for name, free, least in (("memory", memory.available, LITTLE_MEMORY), ("disk", disk.free, LITTLE_DISK))
        if free < least
    ]
    room = f"free: {memory.available / 1e9:.1f} of {memory.total / 1e9:.1f} GB memory, {disk.free / 1e9:.1f} GB disk"
    return [
        Line(OK if threads > 1 else LOOK, f"CPU kernels {kernels}, threads {threads}: {races}"),
        Line(LOOK, f"{room}: little {' and '.join(little)}") if little else Line(OK, room),
    ]


def writable(folder: Path) -> Line:
    """JupyterLab must be able to save."""
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".workshop-check-") as file:
            file.write(b"x")
            file.flush()
            right = Path(file.name).read_bytes() == b"x"
    except OSError as error:
        return Line(BAD, f"the notebooks' folder cannot be written to ({error.strerror}): nothing could be saved")
    return Line(OK if right else BAD, "the notebooks' folder can be read and written")


def port(number: str) -> Line:
    said = trouble(number)
    return Line(LOOK, said) if said else Line(OK, f"port {number} is free")


def changed(todo: list[reset.Lesson]) -> Line:
    """Whose notebooks are these?"""
    states = {lesson.name: lesson.state() for lesson in todo}
    own = [name for name, state in states.items() if state == reset.CHANGED]
    compared = "git's last commit" if any(reset.committed(lesson.path) for lesson in todo) else "notebooks/source"
    if own:
        return Line(LOOK, f"a learner's copy? Changed against {compared}: {', '.join(own)}")
    return Line(OK, f"no notebook's cells differ from {compared}")


def widgets(processes: Processes) -> Line:
    """Moves a panel by keyboard, in a real browser, in a JupyterLab of its own."""
    if chromium.find() is None:
        say = "install Chromium or Chrome, or name one with CHROME=/path/to/it"
        return Line(NOT_CHECKED, f"widgets in a browser: not checked: {say}")
    with tempfile.TemporaryDirectory() as scratch:
        log, start = Path(scratch, "log"), time.monotonic()
        options = ["-q", "-p", "no:cacheprovider", "--color=no", str(ROOT / A_PANEL)]
        status = processes.run(PYTEST + options, log, NOTEBOOK_LIMIT, REQUIRE_BROWSER="1", PYTEST_ADDOPTS="")
        told = log.read_text(errors="replace")
    if status == 0:
        return Line(OK, f"widgets in a browser: a panel followed the arrow keys ({time.monotonic() - start:.0f} s)")
    if status is None:
        return Line(BAD, f"widgets in a browser: hung, and was ended after {NOTEBOOK_LIMIT} s")
    errors = [line[1:].strip() for line in told.splitlines() if line.startswith("E  ")]
    return Line(BAD, "widgets in a browser: a panel did not follow the arrow keys", errors[:MAX_DETAILS])


# --- The page --------------------------------------------------------------------------


def page(lines: list[Line], title: str, verdict: list[str]) -> str:
    """At most 60 lines of at most 100 columns. Where details do not fit, it says how many were left out."""
    details = [len(line.details) for line in lines]
    room = MAX_LINES - len(lines) - len(verdict) - 4  # title, two blanks, and what was left out
    told, left_out = [title, ""], 0
    for line, count in zip(lines, details, strict=True):
        told.append(f"{line.status:<5} {line.text}")
        if count <= room:
            told += [f"{'':<16}{detail}" for detail in line.details]
            room -= count
        else:
            left_out += 1
    told += [f"(The details of {left_out} more are left out.)"] if left_out else []
    return "\n".join(shortened_right(line) for line in [*told, "", *verdict]) + "\n"


def shortened_right(line: str) -> str:
    return line.rstrip() if len(line) <= MAX_COLUMNS else line[: MAX_COLUMNS - 1] + "…"


def verdict(lines: list[Line], notebooks: int) -> list[str]:
    bad = [line for line in lines if line.status == BAD]
    looks = sum(line.status in (LOOK, NOT_CHECKED) for line in lines)
    also = [f"({looks} of the {len(lines)} lines could not be checked, or want a look.)"] if looks else []
    if bad:
        return [f"NOT READY: {len(bad)} of {len(lines)} checks failed.", *also]
    return [f"READY: {notebooks} notebooks ran, and every output that is compared came out as stored.", *also]


def check(todo: list[reset.Lesson], options: argparse.Namespace, processes: Processes) -> list[Line]:
    """All of it; what was looked at, in the page's order."""
    folder = options.notebooks
    lines = [versions(), *machine(folder), writable(folder), port(options.port), changed(todo)]
    with tqdm(total=len(todo) + (not options.no_browser), unit="check", leave=False) as bar:

        def done(lesson: reset.Lesson) -> None:
            bar.set_postfix_str(lesson.name)
            bar.update()

        found = check_notebooks(todo, processes, options.jobs, options.timeout, done)
        if options.no_browser:
            lines.append(Line(NOT_CHECKED, "widgets in a browser: not checked: --no-browser was given"))
        else:
            bar.set_postfix_str("widgets in a browser")
            lines.append(widgets(processes))
            bar.update()
    return lines + found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--notebooks", type=Path, default=ROOT / "notebooks", help="the folder with source/ in it")
    parser.add_argument("--pattern", default="*", help="which lessons, by name: 01*")
    parser.add_argument("--page", type=Path, help="a file to keep the page in")
    parser.add_argument("--port", default="8888", help="where JupyterLab is to listen")
    parser.add_argument("--jobs", type=int, default=2, help="notebooks run side by side")
    parser.add_argument("--timeout", type=float, default=120, help="seconds for one cell")
    parser.add_argument("--no-browser", action="store_true", help="leave the widgets out")
    options = parser.parse_args()
    if options.jobs < 1:
        parser.error(f"--jobs {options.jobs}: it takes one at least (WORKERS=1)")
    if options.page and (options.page.is_dir() or not options.page.absolute().parent.is_dir()):
        parser.error(f"--page {options.page}: a file's name, in a folder that is there")  # not after minutes of work
    options.notebooks = options.notebooks.resolve()
    todo = [one for one in reset.lessons(options.notebooks) if fnmatch.fnmatch(one.source.stem, options.pattern)]
    if not todo:
        print(f"No lesson in {options.notebooks.name}/source fits '{options.pattern}'.", file=sys.stderr)
        return 1
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as make sets it: a thread that waits yields its core
    os.environ["FORWARD_TWICE_PROGRESS"] = "off"  # nobody's own progress is compared, or written
    processes = Processes(ROOT)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))  # one way out for both
    try:
        lines = check(todo, options, processes)
    except KeyboardInterrupt:
        processes.stop()
        print("\nInterrupted: nothing is left running, and no notebook was written.", file=sys.stderr)
        return 130
    title = f"Forward, Twice: workshop check, {datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
    text = page(lines, title, verdict(lines, len(todo)))
    print(text, end="")
    if options.page:
        options.page.write_text(text, encoding="utf-8")
    return 1 if any(line.status == BAD for line in lines) else 0


if __name__ == "__main__":
    sys.exit(main())
