"""Learners run cells twice, and out of order. (`make learner`, `make solved` run the lessons so: second_round.py.)"""

import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import build
import course
import nbformat
import orders
import pytest
import second_round
from nbformat import v4

HERE = Path(__file__).resolve().parent
lessons = pytest.mark.parametrize("source", course.LESSONS, ids=lambda source: source.stem)


def cells_of(source: Path, solved: bool) -> list[str]:
    notebook = build.render(source.stem, source.read_text(encoding="utf-8"), solved)
    return [cell.source for cell in notebook.cells if cell.cell_type == "code"]


# --- Which cells need which


@pytest.mark.parametrize(
    "cells, needed",
    [
        (["a = 1", "a"], [[], [0]]),
        (["a = 1", "a", "a = 2"], [[], [0], [0, 1]]),  # what reads the old value comes before the new one
        (["a = 1", "a = 2", "a"], [[], [0], [0, 1]]),  # ... and no other value comes in between
        (["a = 1\nprint(a)", "a = 2\nprint(a)"], [[], []]),  # each has its own
        (["for n in 'ab':\n    n", "for n in 'cd':\n    n"], [[], []]),
        (["a = [1]", "a.append(2)", "a"], [[], [0], [0, 1]]),
        (["a = [1]", "a[0] = 2", "a[:]"], [[], [0], [0, 1]]),
        (["a = 'b'", "a.upper()", "a"], [[], [0], [0]]),  # a method that only looks
        (["a = 1", "a += 1", "a += 1"], [[], [0], [0, 1]]),
        (["def f():\n    return a", "a = 1", "f()"], [[], [], [0, 1]]),  # a function looks when it is called
        (["n = []", "def f():\n    n.append(1)", "f()", "f()"], [[], [0], [0, 1], [0, 1, 2]]),
        (["class A:\n    def f(self):\n        return a", "a = 1", "A().f()"], [[], [], [0, 1]]),
        (["n = []", "k = dict(n=n)", "k.update(m=1)", "n"], [[], [0], [0, 1], [0, 1, 2]]),  # what it holds, too
        (["import torch", "torch.manual_seed(0)", "torch.rand(1)"], [[], [0], [0, 1]]),
        (["import torch", "torch.rand(1)", "torch.manual_seed(0)\ntorch.rand(1)"], [[], [0], [0]]),  # never seeded
        (["import torch", "torch.manual_seed(0)\ntorch.rand(1)", "torch.manual_seed(0)"], [[], [0], [0]]),
        (["import torch, nn", "torch.manual_seed(0)", "nn.Linear(1, 1)"], [[], [0], [0, 1]]),
        (["import torch\ng = 0", "torch.rand(1, generator=g)", "torch.rand(1, generator=g)"], [[], [0], [0]]),
        (["import p", "p.switch = 1", "p.f()"], [[], [0], [0, 1]]),
        (["import p", "p.f()", "p.f()"], [[], [0], [0]]),  # a module's function: found by running
        (["x = [x for x in 'ab']", "x"], [[], [0]]),
        (["a = [n for n in 'ab']", "n = 1"], [[], []]),
        (["try:\n    1\nexcept OSError as error:\n    error", "error = 1"], [[], []]),
        (["with open('a') as f:\n    t = f", "t"], [[], [0]]),
    ],
)
def test_what_a_cell_needs(cells, needed):
    assert [sorted(before) for before in orders.closed(orders.needs(cells))] == needed


@lessons
@pytest.mark.parametrize("solved", [False, True], ids=["learner", "solved"])
def test_a_lesson_is_no_chain_and_its_orders_keep_what_is_needed(source, solved):
    needed = orders.needs(cells_of(source, solved))
    pairs = len(needed) * (len(needed) - 1) // 2
    assert pairs // 2 < orders.free_pairs(needed) < pairs, "at least half of all pairs can be swapped"
    some = [orders.shuffled(needed, seed) for seed in range(5)]
    for order in some:
        assert sorted(order) == list(range(len(needed)))
        assert all(order.index(i) < order.index(j) for j, before in enumerate(needed) for i in before)
    assert len(set(map(tuple, some))) == 5 and orders.shuffled(needed, 0) == some[0]


# --- What running them so finds


def rounds(folder: Path, seed: str, *cells: tuple[str, str]) -> dict[str, str]:
    """"passed" or "failed" for each cell (its code, and what is stored), by the name that the plugin gives it."""
    notebook = v4.new_notebook()
    for number, (code, text) in enumerate(cells, 1):
        outputs = [v4.new_output("stream", name="stdout", text=text)] if text else []
        notebook.cells.append(v4.new_code_cell(code, execution_count=number, outputs=outputs))
    nbformat.write(notebook, folder / "small.ipynb")
    command = [sys.executable, "-m", "pytest", "-rA", "--color=no", "-p", "no:cacheprovider", "-p", "second_round"]
    command += ["--nbval", "--nbval-current-env", f"--orders-seed={seed}", "small.ipynb"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(HERE), *filter(None, sys.path)])}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    found = re.findall(r"^(PASSED|FAILED) small\.ipynb::(.*?)(?: - .*)?$", done.stdout, re.MULTILINE)
    assert found, done.stdout + done.stderr
    return {name: verdict.lower() for verdict, name in found}


def test_a_cell_that_goes_on_counting_and_a_need_that_no_source_shows_fail_in_the_second_round(tmp_path):
    (tmp_path / "counts.py").write_text("calls = []\n\ndef count():\n    calls.append(1)\n    return len(calls)\n")
    cells = ("from counts import count", ""), ("print(count())", "1\n"), ("box = []", "")
    cells += ("list.append(box, 1)", ""), ("print(len(box))", "1\n")
    needed = orders.needs([code for code, _ in cells])
    assert [sorted(before) for before in needed] == [[], [0], [], [2], [2]]  # an argument is only looked at
    tries = {seed: orders.shuffled(needed, f"small.ipynb{seed}") for seed in range(9)}
    seed = next(seed for seed, order in tries.items() if order.index(4) < order.index(3))
    found = rounds(tmp_path, str(seed), *cells)
    failed = [name for name, verdict in found.items() if verdict == "failed"]
    assert len(found) == 10 and sorted(failed) == ["Cell 1, round 2, shuffled", "Cell 4, round 2, shuffled"]


def test_an_order_that_there_is_not():
    config = SimpleNamespace(option=SimpleNamespace(orders="in-order,sorted", orders_seed=""))
    with pytest.raises(pytest.UsageError, match="--orders: sorted is none of in-order, shuffled"):
        second_round.pytest_collection_modifyitems(config, [])


# --- After a restart


@lessons
def test_every_lesson_says_how_to_go_on_after_a_restart(source):
    head = " ".join(course.markdown(source)[0].split())
    how = r"(go on with )?\*Run → Run All Above Selected Cell\*|run the cells above \*Screen\*"  # drills stand alone
    assert re.search(rf"[Aa]fter a restart, ({how})", head)
