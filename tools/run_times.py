"""What the notebooks take to run, above what their imports take: `make bench` prints it, `make times` writes it down.

    python tools/run_times.py [--rounds 1] [--only 01] [--write]

Every notebook, learner's and solved, is executed as notebooks/build.py executes it, in turns with a *floor*: a
notebook that only imports what every lesson imports. So a slow moment of the machine hits all of them. --write puts
the medians into notebooks/data/run_times.json, and their table into notebooks/workshop.md, between two comments.
Nothing is asserted.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from statistics import mean, median

import nbformat
from nbformat import NotebookNode
from tqdm import tqdm

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "notebooks"))

from build import METADATA, execute, sources  # noqa: E402

TARGET = 10.0  # seconds above the floor, on average
IMPORTS = "import torch\nimport recompute_lab\nfrom recompute_lab.views import style  # brings matplotlib"
BEGIN, END = "<!-- run times: written by make times -->", "<!-- end of the run times -->"
FOLDERS = {"learner": "", "solved": "solutions"}


def floor() -> NotebookNode:
    """A notebook that only imports."""
    return nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(IMPORTS)], metadata=METADATA)


def stripped(path: Path) -> NotebookNode:
    """The stored notebook without outputs, as the builder executes it."""
    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.execution_count, cell.outputs = None, []
    return notebook


def in_turns(runs: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """The median seconds of each run, by name: in every round each has its turn, and a bar shows how far it is.

    Raises ValueError for fewer than one round.
    """
    if rounds < 1:
        raise ValueError(f"rounds must be 1 or more, not {rounds}: each run is timed once in a round")
    taken: dict[str, list[float]] = {name: [] for name in runs}
    with tqdm(total=rounds * len(runs), unit="run") as bar:
        for _ in range(rounds):
            for name, run in runs.items():
                bar.set_postfix_str(name)
                start = time.perf_counter()
                run()
                taken[name].append(time.perf_counter() - start)
                bar.update()
    return {name: median(times) for name, times in taken.items()}


def measure(notebooks: Path, only: str = "", rounds: int = 1, timeout: float = 600) -> dict:
    """What run_times.json holds, of the lessons whose names begin with `only`: seconds, kernel start included.

    Raises build.BuildError if a notebook fails, FileNotFoundError if one was never built.
    """
    names = [source.stem for source in sources(notebooks, only)]
    if not names:
        raise ValueError(f"no source named {only}*.py in {notebooks.name}/source")
    runs = {"imports alone": lambda: execute(floor(), notebooks, timeout)}
    for name in names:
        for kind, below in FOLDERS.items():
            path = notebooks / below / f"{name}.ipynb"
            notebook = stripped(path)
            runs[f"{name}, {kind}"] = lambda n=notebook, p=path: execute(n, p.parent, timeout)
    took, load = in_turns(runs, rounds), os.getloadavg()[1]
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "cpus": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "python": platform.python_version(),
        "torch": version("torch"),
        "load": round(load, 1),  # of the last five minutes, this run's own about one or two included
        "rounds": rounds,
        "floor": round(took["imports alone"], 1),
        "seconds": {name: {kind: round(took[f"{name}, {kind}"], 1) for kind in FOLDERS} for name in names},
    }


def average_above(times: dict) -> float:
    """The mean seconds above the floor, over all notebooks, learner's and solved."""
    return mean(seconds - times["floor"] for both in times["seconds"].values() for seconds in both.values())


def busy(times: dict) -> str:
    """What else the machine had to do, in a sentence: times of a busy one are too long."""
    if times["load"] is None:
        return "How busy the machine was is not recorded."
    too = ": busy, so all times are too long" if times["load"] > times["cpus"] else ""
    return f"Its load was {times['load']:.1f}{too}."


def table(times: dict) -> str:
    """The times as a Markdown table, a lesson a line, with what it was measured on above it."""
    rounds = f"medians of {times['rounds']} runs" if times["rounds"] > 1 else "one run"
    lines = [
        f"{rounds.capitalize()} that took turns with a notebook that only imports ({times['floor']:.1f} s), "
        f"on {times['date']}: {times['cpus']} CPUs, Python {times['python']}, torch {times['torch']}. {busy(times)}",
        "",
        "| notebook | learner's, s | of these above imports | solved, s | of these above imports |",
        "|---|---:|---:|---:|---:|",
    ]
    for name, both in times["seconds"].items():
        cells = [f"{value:.1f}" for kind in FOLDERS for value in (both[kind], both[kind] - times["floor"])]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    lines.append(f"\nOn average a notebook takes {average_above(times):.1f} s above its imports.")
    return "\n".join(lines)


def with_table(text: str, times: dict) -> str:
    """The text with the table of these times between the two comments.

    Raises ValueError if the two do not stand in it once each, in order.
    """
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise ValueError(f"'{BEGIN}' and, below it, '{END}' must stand in the text once each")
    before, rest = text.split(BEGIN)
    return f"{before}{BEGIN}\n\n{table(times)}\n\n{END}{rest.split(END)[1]}"


def show(times: dict) -> None:
    print(f"Seconds above a notebook that only imports ({times['floor']:.1f} s); runs that took turns. {busy(times)}")
    slow = []
    for name, both in times["seconds"].items():
        above = {kind: seconds - times["floor"] for kind, seconds in both.items()}
        slow += [f"{name} ({kind})" for kind, seconds in above.items() if seconds > TARGET]
        print(f"  {name:<24}" + "".join(f"{kind:>10} {seconds:6.1f}" for kind, seconds in above.items()))
    print(f"  on average {average_above(times):.1f} s (target: at most {TARGET:.0f} s)")
    print(f"  above {TARGET:.0f} s: {', '.join(slow) or 'none'}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=1, help="how often each notebook runs")
    parser.add_argument("--only", default="", help="the beginning of a lesson's name")
    parser.add_argument("--write", action="store_true", help="put the times into data/ and workshop.md")
    options = parser.parse_args()
    if options.write and options.only:
        parser.error("--write needs all notebooks, measured in turns: leave out --only")
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as make sets it: a thread that waits yields its core
    os.environ["FORWARD_TWICE_PROGRESS"] = "off"  # nobody's own progress is read, or written
    times = measure(ROOT / "notebooks", options.only, options.rounds)
    show(times)
    if options.write:
        page = ROOT / "notebooks" / "workshop.md"
        text = with_table(page.read_text(encoding="utf-8"), times)
        data = ROOT / "notebooks" / "data" / "run_times.json"
        data.write_text(json.dumps(times, indent=1) + "\n", encoding="utf-8")
        page.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
