"""notebooks/build.py: what it makes of a source, and that a bad run harms nothing."""

import time

import build
import nbformat
import psutil
import pytest
from small_lesson import LESSON

CELL = '# %% tags=["solution"]\n'


def test_a_solution_is_a_stub_for_the_learner():
    *_, cell = build.render("01_small", LESSON, solved=False).cells
    assert cell.source == "def half(number):\n    ...\n\nhalf(answer)"


def test_a_solution_stays_in_the_solved_notebook():
    *_, cell = build.render("01_small", LESSON, solved=True).cells
    assert cell.source == "def half(number):\n    return number / 2\n\nhalf(answer)"


def test_each_block_becomes_a_stub_at_its_own_indentation():
    text = CELL + (
        "### BEGIN SOLUTION\na = 1\n### END SOLUTION\nif a:\n"
        "        ### BEGIN SOLUTION\n        b = 2\n\n        c = 3\n        ### END SOLUTION\n"
    )
    (cell,) = build.render("x", text, solved=False).cells
    assert cell.source == "...\nif a:\n        ..."


def test_a_stub_of_ones_own_is_uncommented():
    text = CELL + "f = {\n    ### BEGIN SOLUTION\n    1: 2,\n    ### STUB\n    # 1: ...,\n    ### END SOLUTION\n}\n"
    learner, solved = (build.render("x", text, solved=s).cells[0].source for s in (False, True))
    assert (learner, solved) == ("f = {\n    1: ...,\n}", "f = {\n    1: 2,\n}")


def test_both_notebooks_share_their_cell_ids_and_repeated_cells_differ():
    text = "# %%\na = 1\n\n# %%\na = 1\n\n" + CELL + "### BEGIN SOLUTION\n### END SOLUTION\n"
    learner, solved = (build.render("x", text, solved=s) for s in (False, True))
    ids = [cell.id for cell in learner.cells]
    assert ids == [cell.id for cell in solved.cells]
    assert len(set(ids)) == 3


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (CELL + "a = 1\n", "tagged 'solution' but has no markers"),
        ("# %%\n### BEGIN SOLUTION\na = 1\n### END SOLUTION\n", "but no such tag"),
        (CELL + "### BEGIN SOLUTION\na = 1\n", "without '### END SOLUTION'"),
        (CELL + "a = 1\n### END SOLUTION\n", "where another marker is due"),
        (CELL + "### BEGIN SOLUTION\n" * 2 + "### END SOLUTION\n", "another marker is due"),
        (CELL + "### STUB\n### END SOLUTION\n", "where another marker is due"),
        (CELL + "### BEGIN SOLUTION\n### STUB\na = 1\n### END SOLUTION\n", "lines are comments"),
        (CELL + "a = 1  ### BEGIN SOLUTION\n### END SOLUTION\n", "on a line of its own"),
    ],
)
def test_malformed_markers_are_named_with_their_file_and_cell(text, complaint):
    with pytest.raises(build.BuildError, match=r"07_x\.py, cell 2: ") as caught:
        build.render("07_x", "# %% [markdown]\n# Text.\n\n" + text, solved=True)
    assert complaint in str(caught.value)


def test_a_second_build_changes_nothing(root):
    def stored():
        return {path: path.read_bytes() for path in root.rglob("*.ipynb")}

    source = root / "source" / "01_small.py"
    source.write_text(LESSON.replace("print(time.perf_counter())", "print('a stable line')"))
    assert build.build(root) == []
    first = stored()
    assert {path.relative_to(root).as_posix() for path in first} == {
        "01_small.ipynb",
        "solutions/01_small.ipynb",
    }
    assert build.build(root) == []
    assert stored() == first


def test_a_notebook_holds_its_outputs_and_nothing_of_this_run(root):
    assert build.build(root) == []
    notebook = nbformat.read(root / "solutions" / "01_small.ipynb", as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == [1, 2, 3, 4]
    assert code[0].outputs[0].text == "The answer is 42\n"
    assert notebook.metadata == build.METADATA
    assert all(set(cell.metadata) <= {"tags"} for cell in notebook.cells)


def test_only_the_named_lesson_is_built(root):
    (root / "source" / "02_other.py").write_text("# %%\n1 + 1\n")
    assert build.build(root, only="02") == []
    assert sorted(path.name for path in root.glob("*.ipynb")) == ["02_other.ipynb"]
    assert "no source named 03*.py" in build.build(root, only="03")[0]


def test_a_failing_cell_is_shown_and_the_old_file_stays(root):
    (root / "01_small.ipynb").write_text("the old file")
    source = root / "source" / "01_small.py"
    source.write_text(LESSON.replace("half(answer)", "half(answer) / 0"))
    learner, solved = build.build(root)
    assert solved.startswith("solutions/01_small.ipynb: cell 6\n")
    assert "def half(number):" in solved and "ZeroDivisionError: float division" in solved
    assert "TypeError" in learner  # the learner's half() gives None
    assert (root / "01_small.ipynb").read_text() == "the old file"
    assert sorted(path.name for path in root.rglob("*") if path.is_file()) == [
        "01_small.ipynb",
        "01_small.py",
    ]


def test_a_dying_kernel_is_a_failure_not_a_hang(root):
    source = root / "source" / "01_small.py"
    source.write_text("# %%\nimport os\nos._exit(1)\n")
    with pytest.raises(build.BuildError, match="(?s)^cell 1\n.*DeadKernelError"):
        build.Job(source, solved=False).run(timeout=60)


def test_a_hanging_kernel_is_killed_and_named(root):
    hang = 'import os\nprint(os.getpid(), file=open("pid", "w"))\nwhile True: pass\n'
    notebook = build.render("01_small", "# %%\n1 + 1\n\n# %%\n" + hang, solved=False)
    start = time.monotonic()
    # Long enough for a kernel to start on a busy machine.
    with pytest.raises(build.Hung, match=r"within 20 s: it hung at cell 2$"):
        build.execute(notebook, root, timeout=20)
    assert time.monotonic() - start < 20 + 10
    assert not psutil.pid_exists(int((root / "pid").read_text()))


@pytest.mark.parametrize("hangs", [1, 2])
def test_a_run_that_hangs_is_tried_once_more(root, monkeypatch, hangs):
    tries = []

    def execute(notebook, folder, timeout):
        tries.append(timeout)
        if len(tries) <= hangs:
            raise build.Hung("it hung at cell 2")
        return notebook

    monkeypatch.setattr(build, "execute", execute)
    (root / "01_small.ipynb").write_text("the old file")
    job = build.Job(root / "source" / "01_small.py", solved=False)
    if hangs == 1:
        job.run(timeout=5)
        assert nbformat.read(job.target, as_version=4).cells
    else:
        with pytest.raises(build.Hung, match="cell 2"):
            job.run(timeout=5)
        assert job.target.read_text() == "the old file"
    assert tries == [5, 5]


def test_a_notebook_that_hangs_is_named(root, monkeypatch):
    def execute(notebook, folder, timeout):
        raise build.Hung("it hung at cell 2")

    monkeypatch.setattr(build, "execute", execute)
    assert build.build(root) == [
        "01_small.ipynb: it hung at cell 2",
        "solutions/01_small.ipynb: it hung at cell 2",
    ]
