"""tools/workshop_check.py on a tree of its own: what it says of a notebook that is broken, and of one that is not."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from small_lesson import LESSON, change, write

HOUSE = Path(__file__).resolve().parent.parent
TOOL = HOUSE / "tools" / "workshop_check.py"
sys.path.insert(0, str(HOUSE / "tools"))

import cell_failures  # noqa: E402
import workshop_check as tool  # noqa: E402


def command(notebooks: Path, *options: str) -> list[str]:
    return [sys.executable, str(TOOL), "--notebooks", str(notebooks), "--no-browser", *options]


def run(notebooks: Path, *options: str) -> tuple[int, str]:
    done = subprocess.run(command(notebooks, *options), capture_output=True, text=True)
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stdout


def files(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def line_of(page: str, name: str) -> str:
    (line,) = (line for line in page.splitlines() if f"  {name}" in line)
    return line


def test_all_fine(tmp_path):
    notebooks = tmp_path / "notebooks"
    for solved in (False, True):
        write(notebooks, "01_small", solved)
    before = files(notebooks)
    status, page = run(notebooks, "--page", str(tmp_path / "page.txt"))
    assert status == 0 and "\nREADY: 2 notebooks ran" in page
    for name in ("01_small.ipynb", "solutions/01_small.ipynb"):
        assert re.fullmatch(r"ok +\d+\.\d s  " + name, line_of(page, name))
    assert "widgets in a browser: not checked" in page
    assert (tmp_path / "page.txt").read_text() == page
    assert files(notebooks) == before, "nothing is written"


@pytest.fixture(scope="module")
def wrong(tmp_path_factory) -> tuple[int, str]:
    """One run over a tree in which every lesson has something of its own: the exit status and the page."""
    notebooks = tmp_path_factory.mktemp("wrong") / "notebooks"
    change(write(notebooks, "01_digit"), lambda code: code[0].outputs[0].update(text="The answer is 43\n"))
    write(notebooks, "02_raises", source=LESSON.replace("6 * 7", "6 / 0"))
    write(notebooks, "03_hangs", source=LESSON.replace("6 * 7", "6 * 7\nwhile True: pass"))
    write(notebooks, "04_dies", source=LESSON.replace("6 * 7", "__import__('os')._exit(1)"))
    # Solved, and saved before it was run: the output is another one.
    answer = "def half(number):\n    return number / 2\n\nhalf(answer)"
    change(write(notebooks, "05_answers"), lambda code: code[-1].update(source=answer))
    change(write(notebooks, "06_note"), lambda code: code[0].update(source=code[0].source + "  # a note"))
    write(notebooks, "07_half").write_text('{"cells": [')
    folder = write(notebooks, "08_folder")
    folder.unlink()
    folder.mkdir()
    return run(notebooks, "--timeout", "5")


def below(page: str, name: str, count: int) -> list[str]:
    """The lines below a notebook's."""
    return [line.strip() for line in page.partition(line_of(page, name))[2].splitlines()[1 : count + 1]]


def test_what_is_wrong_fails(wrong):
    status, page = wrong
    assert status == 1 and re.search(r"^NOT READY: 15 of 23 checks failed\.$", page, re.MULTILINE), page
    assert len(page.splitlines()) <= tool.MAX_LINES and max(map(len, page.splitlines())) <= tool.MAX_COLUMNS


def test_one_digit_of_a_stored_output(wrong):
    line = line_of(wrong[1], "01_digit.ipynb")
    assert line.startswith("FAIL ") and line.endswith("cell 2, [1]")
    told = ["`answer = 6 * 7` printed something else", "stored: The answer is 43", "here:   The answer is 42"]
    assert below(wrong[1], "01_digit.ipynb", 3) == told


def test_an_exception(wrong):
    assert line_of(wrong[1], "02_raises.ipynb").endswith("cell 2, [1]; and 1 more")
    assert below(wrong[1], "02_raises.ipynb", 2) == ["`answer = 6 / 0` raised", "ZeroDivisionError: division by zero"]


def test_a_cell_that_does_not_end(wrong):
    assert line_of(wrong[1], "03_hangs.ipynb").endswith("cell 2, [1]")
    assert below(wrong[1], "03_hangs.ipynb", 1) == ["`answer = 6 * 7` did not end within 5 s"]


def test_a_kernel_that_dies(wrong):
    assert line_of(wrong[1], "04_dies.ipynb").startswith("FAIL ") and "cell 2, [1]" in line_of(
        wrong[1], "04_dies.ipynb"
    )
    told = "`answer = __import__('os')._exit(1)` did not end within 5 s (kernel died, or stuck)"
    assert below(wrong[1], "04_dies.ipynb", 1) == [told]


def test_a_learners_copy_is_named_with_what_to_do(wrong):
    line = line_of(wrong[1], "05_answers.ipynb")
    assert line.startswith("FAIL ") and line.endswith("changed: 'make reset ONLY=05', cells 6")
    owner = "look  a learner's copy? Changed against notebooks/source: 05_answers.ipynb, 06_note.ipynb"
    assert owner in wrong[1].splitlines()


def test_a_changed_notebook_that_runs_fails_nothing(wrong):
    line = line_of(wrong[1], "06_note.ipynb")
    assert line.startswith("look ") and line.endswith("changed: 'make reset ONLY=06', cells 2")


def test_a_broken_file_and_a_missing_one(wrong):
    assert line_of(wrong[1], "07_half.ipynb").endswith("is unreadable: 'make reset ONLY=07'")
    assert line_of(wrong[1], "08_folder.ipynb").endswith("is unreadable: 'make reset ONLY=08'")
    assert line_of(wrong[1], "solutions/07_half.ipynb").endswith("is not there: 'make reset ONLY=07'")


def test_no_lesson_fits(tmp_path):
    write(tmp_path, "01_small")
    done = subprocess.run(command(tmp_path, "--pattern", "07*"), capture_output=True, text=True)
    assert done.returncode == 1 and done.stderr.strip() == f"No lesson in {tmp_path.name}/source fits '07*'."


@pytest.mark.parametrize("options", [("--jobs", "0"), ("--page", "no-such-folder/page.txt"), ("--page", ".")])
def test_what_cannot_be_is_said_before_anything_runs(tmp_path, options):
    write(tmp_path, "01_small")
    done = subprocess.run(command(tmp_path, *options), capture_output=True, text=True)
    assert done.returncode == 2 and f"{options[0]} {options[1]}: " in done.stderr and "Traceback" not in done.stderr


def test_nobodys_own_progress_is_compared(tmp_path, monkeypatch):
    monkeypatch.setenv("FORWARD_TWICE_PROGRESS", str(tmp_path / "mine.jsonl"))
    monkeypatch.setenv("JPY_SESSION_NAME", "notebooks/01_small.ipynb")
    said = "import os; print('The answer is', os.environ['FORWARD_TWICE_PROGRESS'])"
    path = write(tmp_path / "notebooks", "01_small", source=LESSON.replace('print("The answer is", answer)', said))
    change(path, lambda code: code[0].outputs[0].update(text="The answer is off\n"))
    assert line_of(run(tmp_path / "notebooks")[1], "01_small.ipynb").startswith("ok ")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_it_leaves_nothing_running(tmp_path, number):
    notebooks = tmp_path / "notebooks"
    hang = "6 * 7\nopen('pid', 'w').write(str(__import__('os').getpid()))\nwhile True: pass"
    write(notebooks, "01_small", source=LESSON.replace("6 * 7", hang))
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
    assert cell_failures.differing(stored, here) == told


def test_versions_other_than_locked_are_said(monkeypatch):
    assert tool.versions().status == tool.OK or "locked: " in tool.versions().text
    monkeypatch.setattr(tool, "version", lambda name: "0.1" if name == "torch" else "9")
    line = tool.versions()
    assert line.status == tool.LOOK and "torch 0.1 (locked: 2." in line.text


def test_a_missing_browser_is_not_checked_and_fails_nothing(monkeypatch):
    monkeypatch.setattr(tool.chromium, "find", lambda: None)
    line = tool.widgets(tool.Processes(tool.ROOT))
    assert line.status == tool.NOT_CHECKED and "install Chromium or Chrome" in line.text


@pytest.mark.parametrize(("exit_with", "status"), [("true", tool.OK), ("false", tool.BAD)])
def test_the_browser_test_decides(monkeypatch, exit_with, status):
    monkeypatch.setattr(tool.chromium, "find", lambda: "a browser")
    monkeypatch.setattr(tool, "PYTEST", [shutil.which(exit_with)])
    assert tool.widgets(tool.Processes(tool.ROOT)).status == status


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
    processes = tool.Processes(tool.ROOT)
    processes.stop()
    assert processes.run([sys.executable, "-c", "1"], tmp_path / "log", 10) is None
    assert not (tmp_path / "log").exists()


def test_a_run_that_does_not_end_is_ended(tmp_path):
    start = time.monotonic()
    slow = [sys.executable, "-c", "import time; time.sleep(60)"]
    assert tool.Processes(tool.ROOT).run(slow, tmp_path / "log", 0.5) is None
    assert time.monotonic() - start < 30
