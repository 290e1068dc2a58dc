"""Ctrl-C in the lessons' cells, in a kernel: torch is as it was, and the cell, run again, prints what is stored."""

import ast
import os
import random
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import build
import nbformat
import pytest
from jupyter_client.manager import KernelManager

SOLVED = sorted((build.ROOT / "solutions").glob("*.ipynb"))
LONGEST = 1.2  # seconds until an interrupt, at most: what takes longer is always interrupted
# What a library does to the process when it is first imported; and what a cell draws or seeds is its own.
OF_IMPORTS = {"environment", "filters of warnings", "temporary files", "threads", "torch.nn.Module.smart_apply"}
STREAMS = {"stream: torch", "stream: NumPy", "stream: Python"}


@pytest.fixture
def run(tmp_path) -> Iterator[Callable[[str], str]]:
    """Runs code in a kernel; what it prints, and the names of the errors that it ends in."""
    kernel = KernelManager()
    tests = os.path.dirname(__file__)
    kernel.start_kernel(cwd=build.ROOT, env=os.environ | {"PYTHONPATH": os.pathsep.join([*sys.path, tests])})
    client = kernel.blocking_client()
    client.start_channels()

    def run(code: str) -> str:
        printed = []

        def hook(message):
            content = message["content"]
            if message["msg_type"] == "error":
                printed.append(content["ename"])
            elif content.get("name") == "stdout":
                printed.append(content["text"])

        client.execute_interactive(code, output_hook=hook, timeout=120)
        return "".join(printed)

    try:
        client.wait_for_ready(timeout=60)
        run(f"import interrupting, tempfile; tempfile.tempdir = {str(tmp_path)!r}")
        yield run
    finally:
        client.stop_channels()
        kernel.shutdown_kernel(now=True)


@pytest.mark.parametrize("lesson", SOLVED, ids=lambda path: path.stem)
def test_an_interrupted_cell_leaves_torch_as_it_was_and_can_be_run_again(lesson: Path, run):
    cells = [cell for cell in nbformat.read(lesson, as_version=4).cells if cell.cell_type == "code"]
    moments, took = random.Random(lesson.name), {}

    def interrupted(number: int, moment: float) -> bool:
        """Whether a cell, interrupted at a moment, was; it is held to what it must leave, and run again."""
        source = cells[number].source
        run("_as_it_was = interrupting.fingerprint()")
        told = run(f"interrupting.run_cell({source!r}, after={moment})")
        left = set(ast.literal_eval(run("print(interrupting.changed(_as_it_was, interrupting.fingerprint()))")))
        assert not left - OF_IMPORTS - (STREAMS if "seed" in source else {"stream: torch"}), (source, told, left)
        start = time.monotonic()
        again = run(source)
        took[number] = time.monotonic() - start
        compared = "nbval-ignore-output" not in cells[number].metadata.get("tags", [])
        assert not compared or again == stored(cells[number]), (source, told)
        return "KeyboardInterrupt" in told

    run(cells[0].source)  # loads torch; what is left of a module that is half imported is Python's
    if not sum([interrupted(number, LONGEST * moments.random()) for number in range(1, len(cells))]):
        longest = max(took, key=took.get)
        assert interrupted(longest, took[longest] / 2)


def stored(cell: nbformat.NotebookNode) -> str:
    """What `run` gives for it."""
    told = (output.get("ename") or (output.text if output.get("name") == "stdout" else "") for output in cell.outputs)
    return "".join(told)
