"""Does the lab hold on this machine's GPU? `make gpu-check`, a few minutes.

    python tools/gpu_check.py [--pattern 01*] [--jobs 2] [--timeout 120] [--notebooks FOLDER] [--no-lessons]

Runs on the device that the lessons choose (recompute_lab/instruments/device.py): the crash, 162 tensors and 161, and
its repair; the device's random generators, replayed and not; the instruments; what only CUDA has: racing additions, and
cuBLAS products that raise without CUBLAS_WORKSPACE_CONFIG; and every solved notebook, its stored outputs compared
(nbval, strict). Prints one page; a line is ok or FAIL, and says what was seen.
Exits 0 if all is ok, 1 if something is not, 130 if interrupted. Without a GPU it says so, and exits 0. No notebook is
written.
"""

from __future__ import annotations

import argparse
import fnmatch
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "notebooks")]

import device_checks  # noqa: E402
import reset  # noqa: E402
import torch  # noqa: E402
from device_checks import Found  # noqa: E402
from processes import Processes  # noqa: E402
from workshop_check import BAD, OK, Line, check_notebooks, shortened_right  # noqa: E402

from recompute_lab.instruments.device import VARIABLE, device_name, lab_device  # noqa: E402


def checks_for(device: torch.device) -> dict[str, Callable[[torch.device], Found]]:
    """Those that mean something on a device."""
    more = {} if device.type == "cpu" else device_checks.AWAY
    return device_checks.ANYWHERE | more | (device_checks.CUDA if device.type == "cuda" else {})


def line(name: str, check: Callable[[torch.device], Found], device: torch.device) -> Line:
    """What came of one check; of an error, its kind and first line."""
    start = time.monotonic()
    try:
        with device_checks.streams_kept(device):
            found = check(device)
    except Exception as error:
        found = Found(False, f"{type(error).__name__}: {(str(error).strip() or '(no words)').splitlines()[0]}")
    return Line(OK if found.right else BAD, f"{time.monotonic() - start:5.1f} s  {name:<24} {found.told}")


def lessons(todo: list[reset.Lesson], device: torch.device, jobs: int, timeout: float) -> list[Line]:
    """Each notebook under nbval, with the device on; what was looked at, in the lessons' order."""
    os.environ[VARIABLE] = str(device)
    return check_notebooks(todo, Processes(ROOT), jobs, timeout)


def told(one: Line) -> Iterator[str]:
    yield shortened_right(f"{one.status:<5} {one.text}")
    yield from (shortened_right(f"{'':<16}{detail}") for detail in one.details)


def without_a_gpu() -> str:
    """Why there is nothing to check."""
    chosen = os.environ.get(VARIABLE, "").strip()
    why = f"{VARIABLE}={chosen}" if chosen else f"torch {torch.__version__} sees none that works"
    return f"No GPU to check: {why}. The lessons run on the CPU, and nothing is wrong with that."


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--notebooks", type=Path, default=ROOT / "notebooks", help="the folder with source/ in it")
    parser.add_argument("--pattern", default="*", help="which lessons, by name: 01*")
    parser.add_argument("--jobs", type=int, default=2, help="notebooks run side by side")
    parser.add_argument("--timeout", type=float, default=120, help="seconds for one cell")
    parser.add_argument("--no-lessons", action="store_true", help="leave the notebooks out")
    options = parser.parse_args()
    if options.jobs < 1:
        parser.error(f"--jobs {options.jobs}: it takes one at least (WORKERS=1)")
    try:
        device = lab_device()
    except (ValueError, RuntimeError) as error:
        print(error, file=sys.stderr)
        return 1
    if device.type == "cpu":
        print(without_a_gpu())
        return 0
    folder = options.notebooks.resolve()
    fits = [one for one in reset.lessons(folder) if fnmatch.fnmatch(one.source.stem, options.pattern)]
    todo = [] if options.no_lessons else [one for one in fits if one.path.parent.name == "solutions"]
    if not todo and not options.no_lessons:
        print(f"No lesson in {folder.name}/source fits '{options.pattern}'.", file=sys.stderr)
        return 1
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as make sets it
    os.environ["FORWARD_TWICE_PROGRESS"] = "off"  # nobody's own progress is compared, or written
    for number in (signal.SIGINT, signal.SIGTERM):  # one way out for both
        signal.signal(number, signal.default_int_handler)
    try:
        print(f"Forward, Twice: GPU check, {datetime.now(UTC):%Y-%m-%d %H:%M} UTC")
        print(f"{device_name(device)}, torch {torch.__version__}, CUDA {torch.version.cuda}\n")
        lines = []
        for name, check in checks_for(device).items():
            lines.append(line(name, check, device))
            print(*told(lines[-1]), sep="\n", flush=True)
        for one in lessons(todo, device, options.jobs, options.timeout) if todo else ():
            lines.append(one)
            print(*told(one), sep="\n", flush=True)
    except KeyboardInterrupt:
        print("\nInterrupted: nothing is left running, and no notebook was written.", file=sys.stderr)
        return 130
    bad = sum(one.status == BAD for one in lines)
    print(f"\n{f'FAILED: {bad} of {len(lines)} checks' if bad else f'OK: all {len(lines)} checks hold on {device}'}.")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
