"""Are the lab's outputs the same under every torch, Python, number of threads and set of CPU kernels? `make matrix`

    python tools/matrix [--torch 2.6.0,2.14.1] [--python 3.12] [--threads 1,4] [--kernels avx2] [--part unit]
                        [--lesson 03] [--full] [--again] [--list] [--store] [--jobs 2] [--cache FOLDER]

Runs the unit tests and strict nbval on all notebooks, once for each run of the plan (plan.py says which and why;
--full for all combinations), or for those that the options select. The first time, each Python and torch is installed
into the cache (.matrix, gigabytes each; kept). What has ended is kept as well: interrupted or killed, the next call
goes on where this one was; what has passed is run again only when a file that it reads has changed, or with --again.
Exits 0 if every run selected has passed, 1 if one has not, 130 if interrupted. The table is printed, and lies in the
cache as table.txt and table.json; --store copies both into tests/matrix, from where the next call goes on, on any
machine.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
for folder in ("tools", "notebooks"):
    sys.path.insert(0, str(ROOT / folder))

try:
    from environments import NoEnvironment, interpreter, kernels_here, make
    from plan import KERNELS, PARTS, PYTHONS, THREADS, TORCHES, Run, covering, everything
    from processes import Processes
    from running import PASSED, Kept, carry_out
    from table import document, text
    from tqdm import tqdm
except ModuleNotFoundError as missing:
    sys.exit(f"{missing.name} is not installed in this Python: type 'make matrix', which installs what it needs.")

STORED = ROOT / "tests" / "matrix"


def selection(parser: argparse.ArgumentParser, name: str, said: str, known: tuple) -> list:
    """The values that an option names, in the order of the axis."""
    if not said:
        return list(known)
    words = [word.strip() for word in said.split(",") if word.strip()]
    if wrong := [word for word in words if word not in map(str, known)]:
        parser.error(f"--{name} {wrong[0]}: known are {', '.join(map(str, known))}")
    return [value for value in known if str(value) in words]


def options_of(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="matrix", description=__doc__.splitlines()[0], epilog="Values are separated by commas."
    )
    axes = {"torch": TORCHES, "python": PYTHONS, "threads": THREADS, "kernels": KERNELS, "part": PARTS}
    for name, known in axes.items():
        parser.add_argument(f"--{name}", default="", help=f"of {', '.join(map(str, known))}")
    parser.add_argument("--lesson", default="", help="only notebooks whose name begins so: 03")
    parser.add_argument("--full", action="store_true", help="every combination, not the plan's")
    parser.add_argument("--again", action="store_true", help="also what has passed")
    parser.add_argument("--list", action="store_true", help="say what would run, and run nothing")
    parser.add_argument("--store", action="store_true", help="keep the table in tests/matrix")
    parser.add_argument("--jobs", type=int, default=2, help="tests run side by side")
    parser.add_argument("--cache", type=Path, default=ROOT / ".matrix", help="where torch's versions are kept")
    options = parser.parse_args(arguments)
    for name, known in axes.items():
        setattr(options, name, selection(parser, name, getattr(options, name), known))
    if options.jobs < 1:
        parser.error(f"--jobs {options.jobs}: it takes one at least")
    if options.lesson:
        options.part = [part for part in options.part if part != "unit"]  # which no lesson selects
        if not list((ROOT / "notebooks").glob(f"{options.lesson}*.ipynb")):
            parser.error(f"--lesson {options.lesson}: no notebook's name begins so")
        if options.store:
            parser.error("--store keeps the whole matrix, and --lesson selects a part of each run")
    options.cache = options.cache.absolute()
    return options


def asked_for(options: argparse.Namespace) -> tuple[list[Run], list[str]]:
    """The runs of the plan on this machine, and what of the axes is not to be had here, in sentences."""
    pythons = [version for version in PYTHONS if interpreter(version)]
    kernels = kernels_here(Path(sys.executable))
    left_out = [f"Python {version} is not installed here." for version in PYTHONS if version not in pythons]
    left_out += [f"This processor has no {name}." for name in KERNELS if name not in kernels]
    combinations = everything if options.full else covering
    return combinations(pythons, TORCHES, THREADS, kernels), left_out


def selected(run: Run, options: argparse.Namespace) -> bool:
    return (
        run.environment.torch in options.torch
        and run.environment.python in options.python
        and run.threads in options.threads
        and run.kernels in options.kernels
        and run.part in options.part
    )


def work_through(todo: list[Run], options: argparse.Namespace, kept: Kept, processes: Processes) -> list[str]:
    """Carries out the runs, one after the other; what could not be run, in sentences."""
    impossible: dict = {}  # an environment that cannot be made, and why; or a run
    with tqdm(todo, unit="run", dynamic_ncols=True) as bar:
        for run in bar:
            if run.environment in impossible:
                continue
            bar.set_postfix_str(str(run))
            trying = run.environment
            try:
                make(run.environment, options.cache, ROOT, processes)
                trying = run
                record = carry_out(run, ROOT, options.cache, processes, options.lesson, options.jobs)
            except NoEnvironment as error:
                impossible[trying] = str(error)
                continue
            if record is not None:
                kept.add(record)
                told = ", ".join(f"{count} {what}" for what, count in record["tests"].items())
                bar.write(f"{record['status']:<7} {run}: {told}", file=sys.stderr)
    return list(impossible.values())


def main(arguments: list[str] | None = None) -> int:
    options = options_of(arguments)
    asked, left_out = asked_for(options)
    wanted = [run for run in asked if selected(run, options)]
    if not wanted:
        full = "" if options.full else " of the plan; --full has all combinations"
        print(f"Nothing to run: what you selected is not to be had here, or is no part{full}.", file=sys.stderr)
        print("\n".join(left_out), file=sys.stderr)
        return 1
    options.cache.mkdir(parents=True, exist_ok=True)
    kept = Kept(options.cache / "runs.jsonl", STORED / "table.json")
    before = kept.records(ROOT, options.lesson)
    todo = [run for run in wanted if options.again or before.get(run, {}).get("status") != PASSED]
    if options.list:
        for run in wanted:
            print(f"{'to run' if run in todo else 'passed'}  {run}")
        return 0
    processes, impossible = Processes(ROOT), []
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))  # one way out for both
    try:
        impossible = work_through(todo, options, kept, processes)
    except KeyboardInterrupt:
        processes.stop()
        ended = sum(run in kept.records(ROOT, options.lesson) for run in todo)
        print(f"\nInterrupted: {ended} of {len(todo)} runs had ended, and are kept.", file=sys.stderr)
        return 130
    records = kept.records(ROOT, options.lesson)
    shown = wanted if options.lesson else asked
    told = document(shown, records, ROOT, left_out + impossible)
    (options.cache / "table.json").write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    (options.cache / "table.txt").write_text(text(told, shown), encoding="utf-8")
    print(text(told, shown), end="")
    if options.store:
        STORED.mkdir(exist_ok=True)
        for name in ("table.json", "table.txt"):
            shutil.copyfile(options.cache / name, STORED / name)
    return 0 if all(records.get(run, {}).get("status") == PASSED for run in wanted) else 1


if __name__ == "__main__":
    sys.exit(main())
