"""tools/workshop_check.py on a tree of its own: what it says of a notebook that is broken, and of one that is not."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import build
import nbformat
import psutil
import pytest
from small_lesson import LESSON

HOUSE = Path(__file__).resolve().parent.parent
TOOL = HOUSE / "tools" / "workshop_check.py"
sys.path.insert(0, str(HOUSE / "tools"))

import workshop_check as tool  # noqa: E402

# As the builder would store it, without the seconds that a kernel takes.
SAID = ["The answer is 42\n", "1.5\n", "Time passes: True\n", None]
NAME = "01_small.ipynb"


@pytest.fixture
def notebooks(tmp_path) -> Path:
    """A folder like notebooks/, with one small lesson, learner's and solved."""
    folder = tmp_path / "notebooks"
    (folder / "source").mkdir(parents=True)
    (folder / "source" / "01_small.py").write_text(LESSON)
    for solved in (False, True):
        notebook = build.render("01_small", LESSON, solved)
        code = [cell for cell in notebook.cells if cell.cell_type == "code"]
        for number, (cell, said) in enumerate(zip(code, SAID, strict=True), 1):
            cell.execution_count = number
            cell.outputs = [nbformat.v4.new_output("stream", text=said)] if said else []
        if solved:
            value = nbformat.v4.new_output("execute_result", {"text/plain": "21.0"}, execution_count=4)
            code[-1].outputs = [value]
        path = folder / ("solutions" if solved else "") / NAME
        path.parent.mkdir(exist_ok=True)
        nbformat.write(notebook, path)
    return folder


def command(notebooks: Path, *options: str) -> list[str]:
    return [sys.executable, str(TOOL), "--notebooks", str(notebooks), "--no-browser", *options]


def run(notebooks: Path, *options: str) -> tuple[int, str]:
    done = subprocess.run(command(notebooks, *options), capture_output=True, text=True)
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stdout


def change(path: Path, edit) -> None:
    notebook = nbformat.read(path, as_version=4)
    edit([cell for cell in notebook.cells if cell.cell_type == "code"])
    nbformat.write(notebook, path)


def line_of(page: str, name: str) -> str:
    (line,) = (line for line in page.splitlines() if f" {name}" in line)
    return line


def test_all_fine(notebooks, tmp_path):
    before = {path: path.read_bytes() for path in notebooks.rglob("*.ipynb")}
    status, page = run(notebooks, "--page", str(tmp_path / "page.txt"))
    assert status == 0 and "\nREADY: 2 notebooks ran" in page
    assert all(line_of(page, name).startswith("ok ") for name in (NAME, f"solutions/{NAME}"))
    assert "widgets in a browser: not checked" in page
    assert (tmp_path / "page.txt").read_text() == page
    assert {path: path.read_bytes() for path in notebooks.rglob("*.ipynb")} == before, "nothing is written"
    assert sorted(path.name for path in notebooks.iterdir()) == [NAME, "solutions", "source"]


def test_one_digit_of_a_stored_output(notebooks):
    change(notebooks / "solutions" / NAME, lambda code: code[0].outputs[0].update(text="The answer is 43\n"))
    status, page = run(notebooks)
    line = line_of(page, f"solutions/{NAME}")
    assert status == 1 and "NOT READY: 1 of" in page
    assert line.startswith("FAIL ") and line.endswith("cell 2, [1]")
    told = ["`answer = 6 * 7` printed something else", "stored: The answer is 43", "here:   The answer is 42"]
    assert [text.strip() for text in page.partition(line)[2].splitlines()[1:4]] == told
    assert line_of(page, NAME).startswith("ok ")


def broken_source(notebooks: Path, old: str, new: str) -> None:
    """The lesson itself is at fault: its source says what its notebooks say."""
    source = notebooks / "source" / "01_small.py"
    source.write_text(source.read_text().replace(old, new))
    change(notebooks / NAME, lambda code: code[0].update(source=code[0].source.replace(old, new)))
    (notebooks / "solutions" / NAME).unlink()


def test_an_exception(notebooks):
    broken_source(notebooks, "6 * 7", "6 / 0")
    status, page = run(notebooks)
    line = line_of(page, NAME)
    assert status == 1 and "cell 2, [1]; and 1 more" in line
    assert "`answer = 6 / 0` raised\n" in page and "ZeroDivisionError: division by zero\n" in page
    assert "is not there: 'make reset ONLY=01'" in line_of(page, f"solutions/{NAME}")


def test_a_cell_that_does_not_end(notebooks):
    broken_source(notebooks, "6 * 7", "6 * 7\nwhile True: pass")
    status, page = run(notebooks, "--timeout", "3")
    assert status == 1 and "cell 2, [1]" in line_of(page, NAME)
    assert "`answer = 6 * 7` did not end within 3 s\n" in page


def test_a_kernel_that_dies(notebooks):
    broken_source(notebooks, "6 * 7", "__import__('os')._exit(1)")
    status, page = run(notebooks)
    assert status == 1 and "cell 2, [1]" in line_of(page, NAME) and "`answer = __import__" in page


def test_a_learners_copy_is_named_with_what_to_do(notebooks):
    def solve(code):
        code[-1].source = code[-1].source.replace("...", "return number / 2")

    change(notebooks / NAME, solve)  # solved, and saved before it was run: nbval finds another output
    status, page = run(notebooks)
    assert status == 1 and "changed (6): 'make reset ONLY=01'" in line_of(page, NAME)
    assert f"a learner's copy? Changed against notebooks/source: {NAME}" in page


def test_a_changed_notebook_that_runs_fails_nothing(notebooks):
    change(notebooks / NAME, lambda code: code[0].update(source=code[0].source + "  # a note"))
    status, page = run(notebooks)
    assert status == 0 and line_of(page, NAME).startswith("look ")


def test_a_broken_file(notebooks):
    (notebooks / NAME).write_text('{"cells": [')
    status, page = run(notebooks)
    assert status == 1 and "cannot be read as a notebook: 'make reset ONLY=01'" in line_of(page, NAME)


def test_no_lesson_fits(notebooks):
    done = subprocess.run(command(notebooks, "--pattern", "07*"), capture_output=True, text=True)
    assert done.returncode == 1 and done.stderr.strip() == "No lesson in notebooks/source fits '07*'."


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_it_leaves_nothing_running(notebooks, number):
    broken_source(notebooks, "6 * 7", "6 * 7\nopen('pid', 'w').write(str(__import__('os').getpid()))\nwhile True: pass")
    child = subprocess.Popen(command(notebooks), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while not (notebooks / "pid").exists() or not (notebooks / "pid").read_text():
        assert time.monotonic() < deadline and child.poll() is None
        time.sleep(0.1)
    family = psutil.Process(child.pid).children(recursive=True)
    os.kill(child.pid, number)
    page, told = child.communicate(timeout=60)
    assert child.returncode == 130 and page == ""
    assert "Interrupted: nothing is left running" in told and "Traceback" not in told
    assert int((notebooks / "pid").read_text()) in [process.pid for process in family]
    _, alive = psutil.wait_procs(family, timeout=10)
    assert not alive


# --- Without a kernel ------------------------------------------------------------------


def test_the_page_keeps_its_size_whatever_went_wrong():
    many = [tool.Line(tool.BAD, f"{n} " + "x" * 300, ["y" * 300] * 4) for n in range(40)]
    lines = tool.page(many, "title", tool.verdict(many, 40)).splitlines()
    assert len(lines) <= tool.MAX_LINES and max(map(len, lines)) <= tool.MAX_COLUMNS
    assert sum(line.startswith("FAIL") for line in lines) == 40
    assert any("more are left out" in line for line in lines)
    few = tool.page(many[:2], "title", []).splitlines()
    assert sum("y" in line for line in few) == 8


@pytest.mark.parametrize(
    ("stored", "here", "told"),
    [
        ("a\nb\nc", "a\nB\nc", ["stored: b", "here:   B"]),
        ("a", "a\nb", ["stored: (nothing)", "here:   b"]),
        ("a\nb\nc", "a", ["stored: b", "here:   (nothing)", "and 1 more line in a row"]),
        ("a", "a", []),
    ],
)
def test_the_first_difference_is_shown(stored, here, told):
    assert tool.differing(stored, here) == told


def test_versions_other_than_locked_are_said(monkeypatch):
    assert tool.versions().status == tool.OK or "locked: " in tool.versions().text
    monkeypatch.setattr(tool, "version", lambda name: "0.1" if name == "torch" else "9")
    line = tool.versions()
    assert line.status == tool.LOOK and "torch 0.1 (locked: 2." in line.text


def test_a_missing_browser_is_not_checked_and_fails_nothing(monkeypatch):
    monkeypatch.setattr(tool.chromium, "find", lambda: None)
    line = tool.widgets(tool.Processes())
    assert line.status == tool.NOT_CHECKED and "install Chromium or Chrome" in line.text


@pytest.mark.parametrize(("exit_with", "status"), [("true", tool.OK), ("false", tool.BAD)])
def test_the_browser_test_decides(monkeypatch, exit_with, status):
    monkeypatch.setattr(tool.chromium, "find", lambda: "a browser")
    monkeypatch.setattr(tool, "PYTEST", [shutil.which(exit_with)])
    assert tool.widgets(tool.Processes()).status == status


def test_the_panels_test_that_is_run_is_there():
    file, name = tool.A_PANEL.split("::")
    assert f"def {name}(" in (HOUSE / file).read_text()


def test_a_folder_that_cannot_be_written_is_a_failure(tmp_path):
    assert tool.writable(tmp_path).status == tool.OK
    line = tool.writable(tmp_path / "not there")
    assert line.status == tool.BAD and "cannot be written to" in line.text


def test_a_port_that_is_taken_is_worth_a_look():
    import socket

    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        assert tool.port(str(server.getsockname()[1])).status == tool.LOOK


def test_after_a_stop_nothing_begins(tmp_path):
    processes = tool.Processes()
    processes.stop()
    assert processes.run([sys.executable, "-c", "1"], tmp_path / "log", 10) is None
    assert not (tmp_path / "log").exists()


def test_a_run_that_does_not_end_is_ended(tmp_path):
    start = time.monotonic()
    slow = [sys.executable, "-c", "import time; time.sleep(60)"]
    assert tool.Processes().run(slow, tmp_path / "log", 0.5) is None
    assert time.monotonic() - start < 30
