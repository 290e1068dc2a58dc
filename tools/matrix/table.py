"""The matrix as one table: JSON for programs, text for people."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path

from plan import KERNELS, THREADS, Run
from running import PASSED, run_of

OK, WRONG, NOT_YET, NOT_ASKED = "ok", "FAIL", "?", "·"
WHAT = {
    "solved": "solved notebooks, strict nbval",
    "learner": "learner's notebooks, strict nbval",
    "unit": "unit tests",
}
WIDTH = 5  # of a column


def machine() -> str:
    """What the runs were made on, without a name or a place of its own."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    name = names[0] if names else platform.processor() or platform.machine()
    return f"{platform.system()} {platform.machine()}, {name}, {os.cpu_count()} cores"


def commit(root: Path) -> str:
    """The commit that the tree is at, with "+" if the tree differs from it; "" without git."""
    said = subprocess.run(["git", "describe", "--always", "--dirty=+"], cwd=root, capture_output=True, text=True)
    return said.stdout.strip() if said.returncode == 0 else ""


def document(asked: list[Run], records: dict[Run, dict], root: Path, left_out: list[str]) -> dict:
    """All that the table says. `asked` is the plan, `left_out` sentences on what of the axes is not to be had here."""
    done = [records[run] for run in asked if run in records]
    dates = sorted({record["date"] for record in done})
    return {
        "dates": dates,
        "commit": commit(root),
        "machine": machine(),
        "left out": left_out,
        "asked": len(asked),
        "passed": sum(record["status"] == PASSED for record in done),
        "not run": [str(run) for run in asked if run not in records],
        "runs": done,
    }


def sign(run: Run, asked: set[Run], records: dict[Run, dict]) -> str:
    if run not in asked:
        return NOT_ASKED
    if run not in records:
        return NOT_YET
    return OK if records[run]["status"] == PASSED else WRONG


def block(part: str, asked: set[Run], records: dict[Run, dict]) -> list[str]:
    """One part: a row for each Python and torch, a column for each set of kernels and number of threads."""
    here = [run for run in asked if run.part == part]
    kernels = [k for k in KERNELS if any(run.kernels == k for run in here)]
    threads = [t for t in THREADS if any(run.threads == t for run in here)]
    group = WIDTH * len(threads)
    told = [WHAT[part], f"{'kernels':>17}  " + "  ".join(f"{k:<{group}}" for k in kernels).rstrip()]
    told.append(f"{'threads':>17}  " + "  ".join("".join(f"{t:<{WIDTH}}" for t in threads) for _ in kernels).rstrip())
    for environment in sorted({run.environment for run in here}, key=lambda e: [numbers(e.python), numbers(e.torch)]):
        cells = [
            "".join(f"{sign(Run(environment, t, k, part), asked, records):<{WIDTH}}" for t in threads) for k in kernels
        ]
        told.append(f"{environment.python:<5} torch {environment.torch:<6} {'  '.join(cells).rstrip()}")
    return told


def numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def tests_of(part: str, records: dict[Run, dict]) -> str:
    """How many tests each run of a part had: one number if all had the same."""
    found = sorted(
        {", ".join(f"{n} {what}" for what, n in r["tests"].items()) for run, r in records.items() if run.part == part}
    )
    return "; or ".join(found) or "none run"


def text(document: dict, asked: list[Run]) -> str:
    """The table for people, at most 100 columns where no output is longer."""
    records = {run_of(record): record for record in document["runs"]}
    days = document["dates"]
    when = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}" if days else "not run"
    told = [
        "Forward, Twice: the matrix",
        f"{when}, commit {document['commit'] or 'unknown'}; {document['machine']}",
        f"{document['passed']} of {document['asked']} runs passed"
        + (f", {len(document['not run'])} not run yet" if document["not run"] else ""),
        f"{OK}: passed   {WRONG}: failed, see below   {NOT_YET}: not run yet   {NOT_ASKED}: not part of this plan",
        *document["left out"],
    ]
    for part in WHAT:
        if any(run.part == part for run in asked):
            told += ["", *block(part, set(asked), records), f"each run: {tests_of(part, records)}"]
    for run, record in records.items():
        if record["status"] != PASSED:
            told += ["", f"FAIL {run}"]
            for failure in record["failures"]:
                told += [f"    {failure['where']}", f"        {failure['what']}"]
                told += [f"        {line}" for line in failure["details"]]
    return "\n".join(told) + "\n"
