"""The matrix: which runs it plans, that it goes on where it was stopped, and that it says what fails and where."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from itertools import combinations
from pathlib import Path

import psutil
import pytest
import torch
from small_lesson import LESSON, change, write

HOUSE = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(HOUSE / "tools"), str(HOUSE / "tools" / "matrix")]

import environments  # noqa: E402
import plan  # noqa: E402
import running  # noqa: E402
import table  # noqa: E402
from processes import Processes  # noqa: E402

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
TORCH = torch.__version__.partition("+")[0]
ONE = ("--torch", TORCH, "--python", PYTHON, "--threads", "1", "--kernels", "default", "--full")


# --- The plan --------------------------------------------------------------------------


def settings_of(run: plan.Run) -> tuple:
    return run.environment.python, run.environment.torch, run.threads, run.kernels


@pytest.mark.parametrize(("part", "strength", "runs"), [("solved", 3, 27), ("learner", 2, 9), ("unit", 2, 9)])
def test_any_so_many_settings_meet_in_every_combination_once(part, strength, runs):
    planned = [settings_of(run) for run in plan.covering(plan.PYTHONS) if run.part == part]
    assert len(planned) == len(set(planned)) == runs
    for axes in combinations(range(4), strength):
        met = Counter(tuple(settings[axis] for axis in axes) for settings in planned)
        assert set(met.values()) == {1} and len(met) == 3**strength, axes


@pytest.mark.parametrize("pythons", [("3.11",), ("3.12", "3.13")])
@pytest.mark.parametrize("kernels", [("default",), ("default", "avx2"), plan.KERNELS])
def test_with_less_at_hand_torch_threads_and_kernels_still_meet(pythons, kernels):
    planned = [settings_of(run)[1:] for run in plan.covering(pythons, kernels=kernels) if run.part == "solved"]
    assert sorted(planned) == sorted({settings_of(r)[1:] for r in plan.everything(pythons, kernels=kernels)})
    for part in ("learner", "unit"):
        environments = {run.environment for run in plan.covering(pythons, kernels=kernels) if run.part == part}
        assert environments == {run.environment for run in plan.everything(pythons)}


def test_everything_is_the_product():
    runs = plan.everything(plan.PYTHONS)
    assert len(runs) == len(set(runs)) == 3**4 * len(plan.PARTS)
    assert set(plan.covering(plan.PYTHONS)) < set(runs)


def test_make_tests_fast_part_has_every_number_of_threads_and_all_kernels():
    said = subprocess.run(["make", "-n", "unit", "learner", "solved"], cwd=HOUSE, capture_output=True, text=True).stdout
    assert sorted(map(int, re.findall(r"OMP_NUM_THREADS=(\d+)", said))) == list(plan.THREADS)
    told = re.findall(r"ATEN_CPU_CAPABILITY=(.*?)\s+\S*/python -m pytest", said.replace("\\\n", ""), re.DOTALL)
    assert len(told) == 2 and told[0] == "default" and "avx2" in told[1]  # and the unit tests with the best there is
    assert re.search(
        r"^unit learner solved: export MKL_DYNAMIC := FALSE", (HOUSE / "Makefile").read_text(), re.MULTILINE
    )
    four = subprocess.run(
        [sys.executable, "-c", "import torch; print(torch.get_num_threads())"],
        env=os.environ | {"OMP_NUM_THREADS": "4", "MKL_DYNAMIC": "FALSE"},
        capture_output=True,
        text=True,
    )
    assert four.stdout == "4\n", "on as few cores as there may be"


# --- Environments ----------------------------------------------------------------------


def test_this_python_is_found_and_one_that_nobody_has_is_not():
    found = environments.interpreter(PYTHON)
    said = subprocess.run([found, "-c", "import sys; print(*sys.version_info[:2])"], capture_output=True, text=True)
    assert said.stdout.split() == PYTHON.split(".")
    assert environments.interpreter("3.99") is None


def test_a_python_that_only_pyenv_knows_is_found(tmp_path, monkeypatch):
    home = tmp_path / "versions" / "3.98.1" / "bin"
    home.mkdir(parents=True)
    (home / "python").write_text("#!/bin/sh\nprintf 3.98\n")
    (home / "python").chmod(0o755)
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    assert environments.interpreter("3.98") == str(home / "python")
    (home / "python").write_text("#!/bin/sh\nexit 1\n")
    assert environments.interpreter("3.98") is None, "one that does not run is none"


def test_torchs_own_choices_are_taken_out_of_the_lock():
    lock = "# pinned\nSymPy==1.14.0\ntorch==2.13.0\ntyping_extensions==4.1 ; python_version > '3'\nnumpy==2.4.6\n"
    assert environments.without(lock, {"sympy", "torch", "typing-extensions"}) == "numpy==2.4.6\n"


def test_an_install_that_fails_is_one_sentence(tmp_path):
    (tmp_path / "requirements.lock").write_text("")
    (tmp_path / "pyproject.toml").write_text("")
    nobody = plan.Environment("3.99", TORCH)
    with pytest.raises(environments.NoEnvironment, match=r"there is no Python 3\.99 here"):
        environments.make(nobody, tmp_path / "cache", tmp_path, Processes(tmp_path))
    assert not (tmp_path / "cache" / str(nobody) / ".installed").exists()


def test_settings_that_torch_does_not_take_are_refused(tmp_path):
    here = plan.Environment(PYTHON, TORCH)
    (tmp_path / str(here)).symlink_to(sys.prefix)
    assert environments.seen(here, tmp_path, 4, "default")["threads"] == 4
    other = plan.Environment(PYTHON, "0.1.0")
    (tmp_path / str(other)).symlink_to(sys.prefix)
    with pytest.raises(environments.NoEnvironment, match="says of itself"):
        environments.seen(other, tmp_path, 2, "default")
    with pytest.raises(environments.NoEnvironment, match="cannot be loaded in py3.99"):
        environments.seen(plan.Environment("3.99", TORCH), tmp_path, 2, "default")


def test_plain_kernels_have_one_name_in_all_versions():
    assert [environments.named(word) for word in ("NO AVX", "DEFAULT", "AVX2", "AVX512")] == ["default", *plan.KERNELS]


def test_the_kernels_are_those_of_the_processor_whatever_is_asked_for(monkeypatch):
    here = environments.kernels_here(Path(sys.executable))
    assert here == plan.KERNELS[: len(here)] and here
    monkeypatch.setenv("ATEN_CPU_CAPABILITY", "default")
    assert environments.kernels_here(Path(sys.executable)) == here


# --- What is kept ----------------------------------------------------------------------


@pytest.fixture
def tree(tmp_path) -> Path:
    """A repository with the tool in it, two small notebooks, a unit test, and this Python as its environment."""
    root = tmp_path / "house"
    shutil.copytree(HOUSE / "tools", root / "tools", ignore=shutil.ignore_patterns("__pycache__"))
    (root / "tests" / "matrix").mkdir(parents=True)
    (root / "src").mkdir()
    for solved in (False, True):
        write(root / "notebooks", "01_small", solved)
        write(root / "notebooks", "02_other", solved)
    for name in ("build.py", "checks.py"):
        shutil.copy(HOUSE / "notebooks" / name, root / "notebooks")
    for name in ("pyproject.toml", "requirements.lock"):
        shutil.copy(HOUSE / name, root)
    (root / "tests" / "test_one.py").write_text("def test_one():\n    assert 1 == 1\n")
    (root / ".gitignore").write_text("__pycache__/\n.matrix/\n*.pid\n")
    subprocess.run(["git", "init", "--quiet"], cwd=root, check=True)
    place = root / ".matrix" / str(plan.Environment(PYTHON, TORCH))
    place.mkdir(parents=True)
    for name in set(os.listdir(sys.prefix)) - {".installed"}:
        (place / name).symlink_to(Path(sys.prefix, name))
    (place / ".installed").write_text(environments.stamp_of(root))
    return root


needs_a_known_torch = pytest.mark.skipif(
    TORCH not in plan.TORCHES or PYTHON not in plan.PYTHONS, reason="this torch or Python is none of the matrix's"
)


def matrix(root: Path, *options: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, str(root / "tools" / "matrix"), *options], capture_output=True, text=True, timeout=300
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stdout, done.stderr


def test_a_digest_is_of_what_a_part_reads(tree):
    def digests():
        return {part: running.digest(tree, part) for part in plan.PARTS}

    before = digests()
    (tree / "tests" / "matrix" / "table.txt").write_text("ok")
    (tree / "notes.pid").write_text("what git ignores")
    assert digests() == before
    (tree / "README.md").write_text("words")
    assert {part for part in plan.PARTS if digests()[part] != before[part]} == {"unit"}
    (tree / "src" / "specimen.py").write_text("LIMIT = 1.2\n")
    now = digests()
    assert all(now[part] != before[part] for part in plan.PARTS)
    (tree / "src" / "specimen.py").write_text("LIMIT = 1.3\n")
    assert all(digests()[part] != now[part] for part in plan.PARTS)


def test_the_last_record_of_todays_tree_counts_and_half_a_line_does_not(tree):
    run = plan.Run(plan.Environment("3.12", "2.6.0"), 4, "avx2", "unit")
    said = {"python": "3.12", "torch": "2.6.0", "threads": 4, "kernels": "avx2", "part": "unit", "lessons": ""}
    kept = running.Kept(tree / ".matrix" / "runs.jsonl", tree / "tests" / "matrix" / "table.json")
    today = running.digest(tree, "unit")
    kept.add(said | {"digest": "another", "status": running.PASSED})
    assert kept.records(tree) == {}
    kept.add(said | {"digest": today, "status": running.FAILED})
    kept.add(said | {"digest": today, "status": running.PASSED})
    with kept.path.open("a") as out:
        out.write('{"python": "3.12", "tor')
    assert kept.records(tree)[run]["status"] == running.PASSED
    assert kept.records(tree, lessons="03") == {}, "a part of the lessons is not all of them"
    kept.path.unlink()
    kept.stored.write_text(json.dumps({"runs": [said | {"digest": today, "status": running.PASSED}]}))
    assert list(kept.records(tree)) == [run], "the stored table is gone on with"
    kept.add(said | {"digest": today, "status": running.FAILED})
    assert kept.records(tree)[run]["status"] == running.FAILED, "and what was run here since comes after it"


# --- For real --------------------------------------------------------------------------


@needs_a_known_torch
def test_what_has_passed_is_not_run_again_until_it_changes(tree):
    status, told, _ = matrix(tree, *ONE)
    assert status == 0, told
    assert len(re.findall(rf"^{PYTHON} +torch {TORCH} +ok\b", told, re.MULTILINE)) == 3
    assert "each run: 8 passed" in told and "each run: 1 passed" in told
    assert matrix(tree, *ONE, "--list")[1].count("passed  ") == 3
    (tree / "README.md").write_text("Other words.\n")
    listed = matrix(tree, *ONE, "--list")[1].splitlines()
    assert [line.split(",")[-1].strip() for line in listed if line.startswith("to run")] == ["unit"]
    stored = json.loads((tree / ".matrix" / "table.json").read_text())
    assert stored["passed"] == 3 and len(stored["dates"]) == 1
    assert str(tree) not in json.dumps(stored), "no place on anybody's machine"


@needs_a_known_torch
def test_a_failure_is_told_with_the_cell_and_both_outputs(tree):
    path = tree / "notebooks" / "solutions" / "02_other.ipynb"
    change(path, lambda code: code[0].outputs[0].update(text="The answer is 43\n"))
    (tree / "tests" / "test_one.py").write_text("def test_one():\n    assert 6 * 7 == 43\n")
    status, told, _ = matrix(tree, *ONE, "--store")
    assert status == 1
    lines = [line.strip() for line in told.splitlines()]
    at = lines.index("solutions/02_other.ipynb, cell 2, [1]")
    assert lines[at + 1 : at + 4] == [
        "`answer = 6 * 7` printed something else",
        "stored: The answer is 43",
        "here:   The answer is 42",
    ]
    at = lines.index("tests.test_one.test_one")
    assert "assert (6 * 7) == 43" in " ".join(lines[at : at + 3])
    assert (tree / "tests" / "matrix" / "table.txt").read_text() == told, "and nothing but the table on stdout"
    assert matrix(tree, *ONE, "--list")[1].count("to run  ") == 2


@needs_a_known_torch
def test_a_notebook_that_cannot_be_read_is_no_pass(tree):
    (tree / "notebooks" / "solutions" / "02_other.ipynb").write_text('{"cells": [')
    status, told, _ = matrix(tree, *ONE, "--part", "solved")
    assert status == 1 and "FAIL Python" in told


@needs_a_known_torch
def test_interrupted_it_leaves_nothing_running_and_keeps_what_had_ended(tree):
    hang = "6 * 7\nopen('kernel.pid', 'w').write(str(__import__('os').getpid()))\nwhile True: pass"
    write(tree / "notebooks", "02_other", source=LESSON.replace("6 * 7", hang))
    child = subprocess.Popen(
        [sys.executable, str(tree / "tools" / "matrix"), *ONE, "--part", "solved,learner"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    pid = tree / "notebooks" / "kernel.pid"
    deadline = time.monotonic() + 200
    while not pid.exists() or not pid.read_text():
        assert time.monotonic() < deadline and child.poll() is None
        time.sleep(0.1)
    family = psutil.Process(child.pid).children(recursive=True)
    os.kill(child.pid, signal.SIGINT)
    _, told = child.communicate(timeout=60)
    assert child.returncode == 130
    assert "Interrupted: 1 of 2 runs had ended, and are kept." in told and "Traceback" not in told
    assert int(pid.read_text()) in [process.pid for process in family]
    assert not psutil.wait_procs(family, timeout=10)[1]
    listed = matrix(tree, *ONE, "--part", "solved", "--list")[1]
    assert listed.startswith("passed  ")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--torch", "2.5.0"), "--torch 2.5.0: known are 2.6.0, 2.13.0, 2.14.1"),
        (("--threads", "3"), "--threads 3: known are 1, 2, 4"),
        (("--jobs", "0"), "--jobs 0: it takes one at least"),
        (("--lesson", "77"), "--lesson 77: no notebook's name begins so"),
        (("--lesson", "01", "--store"), "--store keeps the whole matrix"),
    ],
)
def test_what_cannot_be_selected_is_said(options, said):
    done = subprocess.run([sys.executable, str(HOUSE / "tools" / "matrix"), *options], capture_output=True, text=True)
    assert done.returncode == 2 and said in done.stderr and "Traceback" not in done.stderr


# --- The table -------------------------------------------------------------------------


def test_the_table_says_what_was_not_run_and_what_is_not_to_be_had():
    asked = plan.covering(plan.PYTHONS)
    document = table.document(asked, {}, HOUSE, ["Python 3.13 is not installed here."])
    told = table.text(document, asked)
    assert "0 of 45 runs passed, 45 not run yet" in told and "Python 3.13 is not installed here." in told
    signs = Counter(re.findall(r"[?·]|\bok\b", told.partition("solved notebooks")[2]))
    assert signs == {"?": 45, "·": 3 * 81 - 45}
    assert max(map(len, told.splitlines())) <= 100


STORED = HOUSE / "tests" / "matrix"


@pytest.fixture(scope="module")
def stored() -> dict:
    return json.loads((STORED / "table.json").read_text(encoding="utf-8"))


def test_the_whole_plan_was_run_and_passed(stored):
    planned, runs = plan.covering(plan.PYTHONS), [running.run_of(record) for record in stored["runs"]]
    assert sorted(map(str, runs)) == sorted(map(str, planned)) and stored["not run"] == stored["left out"] == []
    assert stored["asked"] == stored["passed"] == len(runs)
    assert [record for record in stored["runs"] if record["status"] != running.PASSED or record["failures"]] == []
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\d", date) for date in stored["dates"]) and stored["dates"]


def test_the_stored_table_is_of_one_tree(stored):
    for part in plan.PARTS:
        assert len({record["digest"] for record in stored["runs"] if record["part"] == part}) == 1


def test_each_run_had_as_many_tests_as_the_others(stored):
    """A run that lost half of its notebooks has not passed; what one torch lacks is skipped, and counted as that."""
    for part in plan.PARTS:
        totals = {sum(record["tests"].values()) for record in stored["runs"] if record["part"] == part}
        assert len(totals) == 1 and totals.pop() > 100, part


def test_the_text_is_what_the_json_says(stored):
    asked = plan.covering(plan.PYTHONS)
    assert (STORED / "table.txt").read_text(encoding="utf-8") == table.text(stored, asked)
