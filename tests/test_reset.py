"""tools/reset.py: back to unsolved, and nothing that a learner wrote is lost."""

import shutil
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import build
import nbformat
import pytest
from small_lesson import LESSON

HOUSE = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(HOUSE / "tools"))

import reset  # noqa: E402

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
FOLDER = "2026-01-02T03-04-05Z"
NAME = "01_small.ipynb"


def write(lesson: reset.Lesson) -> None:
    """Stands in for the builder: the lesson's notebook, with outputs, without the seconds that a kernel takes."""
    notebook = build.render(lesson.source.stem, LESSON, lesson.solved)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    for number, cell in enumerate(code, 1):
        cell.execution_count, cell.outputs = number, [nbformat.v4.new_output("stream", text=f"said {number}\n")]
    lesson.path.parent.mkdir(exist_ok=True)
    nbformat.write(notebook, lesson.path)


@pytest.fixture
def bare(tmp_path) -> Path:
    """A folder like notebooks/, no git: a lesson, built; a journal and an old copy in my/; a notebook of one's own."""
    notebooks = tmp_path / "notebooks"
    (notebooks / "source").mkdir(parents=True)
    (notebooks / "source" / "01_small.py").write_text(LESSON)
    for lesson in reset.lessons(notebooks):
        write(lesson)
    (notebooks / "my" / "older").mkdir(parents=True)
    (notebooks / "my" / "progress.jsonl").write_text('{"a": 1}\n')
    (notebooks / "my" / "older" / NAME).write_text("an earlier copy")
    (notebooks / "Untitled.ipynb").write_text("{}")
    return notebooks


def git(folder: Path, *words: str) -> str:
    own = ("-c", "user.name=n", "-c", "user.email=e@example.org", "-c", "commit.gpgsign=false")
    return subprocess.run(["git", *own, *words], cwd=folder, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def checkout(bare) -> Path:
    if not shutil.which("git"):
        pytest.skip("there is no git on this machine")
    (bare.parent / ".gitignore").write_text("notebooks/my/\n")
    git(bare.parent, "init", "-q")
    git(bare.parent, "add", ".")
    git(bare.parent, "commit", "-qm", "all")
    return bare


@pytest.fixture(params=["bare", "checkout"])
def notebooks(request) -> Path:
    return request.getfixturevalue(request.param)


def run(notebooks: Path, **options) -> list[str]:
    told = list(reset.reset(notebooks, now=NOW, build=write, **options))
    assert all(well for _, well in told), told
    return [line for line, _ in told]


def everything(notebooks: Path) -> dict[str, bytes]:
    return {p.relative_to(notebooks).as_posix(): p.read_bytes() for p in notebooks.rglob("*") if p.is_file()}


def edit(path: Path, change) -> bytes:
    """Changes a notebook as JupyterLab does, which notes Python's version; what the file then holds."""
    notebook = nbformat.read(path, as_version=4)
    change(notebook.cells)
    notebook.metadata.language_info["version"] = "3.12.0"
    nbformat.write(notebook, path)
    return path.read_bytes()


def solve(cells) -> None:
    cells[-1].source = "def half(number):\n    return number / 2\n\nhalf(answer)"


def reword(cells) -> None:
    cells[0].source += "\n\nA note of mine."


def add(cells) -> None:
    cells.append(nbformat.v4.new_code_cell("1 + 1"))


def drop(cells) -> None:
    del cells[-1]


def rerun(cells) -> None:
    cells[1].execution_count, cells[1].outputs = 7, []


@pytest.mark.parametrize("change", [solve, reword, add, drop])
def test_what_a_learner_wrote_is_copied_and_the_lesson_put_back(notebooks, change):
    before = everything(notebooks)
    mine = edit(notebooks / NAME, change)
    told, other = run(notebooks)
    after = everything(notebooks)
    assert after.pop(f"my/{FOLDER}/{NAME}") == mine
    assert after == before, "all else is as it was, the journal and the earlier copy, too"
    assert told.startswith(f"{NAME}: changed, yours is kept as notebooks/my/{FOLDER}/{NAME}; ")
    assert other == f"solutions/{NAME}: as it was"


def test_the_line_says_where_it_came_from(checkout):
    edit(checkout / NAME, solve)
    assert run(checkout)[0].endswith("put back from git's last commit")
    assert git(checkout, "status", "--porcelain") == ""
    shutil.rmtree(checkout.parent / ".git")
    edit(checkout / NAME, solve)
    assert run(checkout)[0].endswith("built anew from source/01_small.py")


def test_outputs_alone_are_put_back_without_a_copy(notebooks):
    before = everything(notebooks)
    edit(notebooks / NAME, rerun)
    assert "was run, its cells are unchanged (no copy)" in run(notebooks)[0]
    assert everything(notebooks) == before


def test_nothing_changed_nothing_done(notebooks):
    before = everything(notebooks)
    assert run(notebooks) == [f"{NAME}: as it was", f"solutions/{NAME}: as it was"]
    assert everything(notebooks) == before


@pytest.mark.parametrize(
    "half",
    [
        b'{"cells": [{"cell_ty',
        b"",
        b"[]",
        b"\xff\xfe",
        b'{"cells": null}',
        b'{"cells": [1]}',
        '{"cells": []}'.encode("utf-16"),
        b"<<<<<<< HEAD\n{}\n=======\n{}\n>>>>>>> theirs\n",
    ],
)
def test_a_half_written_notebook_is_copied_too(notebooks, half):
    before = everything(notebooks)
    (notebooks / NAME).write_bytes(half)
    assert "cannot be read as a notebook, yours is kept as" in run(notebooks)[0]
    after = everything(notebooks)
    assert after.pop(f"my/{FOLDER}/{NAME}") == half
    assert after == before


def test_a_lost_notebook_comes_back(notebooks):
    before = everything(notebooks)
    (notebooks / NAME).unlink()
    assert f"{NAME}: was not there; " in run(notebooks)[0]
    assert everything(notebooks) == before


def test_a_changed_solution_is_kept_apart_from_the_learners(notebooks):
    mine = [edit(notebooks / folder / NAME, reword) for folder in (".", "solutions")]
    run(notebooks)
    kept = notebooks / "my" / FOLDER
    assert [(kept / folder / NAME).read_bytes() for folder in (".", "solutions")] == mine


def test_no_copy_is_ever_overwritten(notebooks):
    first = edit(notebooks / NAME, solve)
    run(notebooks)
    second = edit(notebooks / NAME, add)
    assert f"my/{FOLDER}-2/{NAME}" in run(notebooks)[0]
    kept = [(notebooks / "my" / folder / NAME).read_bytes() for folder in (FOLDER, f"{FOLDER}-2")]
    assert kept == [first, second]


def test_answers_that_were_committed_do_not_count_as_the_lesson(checkout):
    before = everything(checkout)
    mine = edit(checkout / NAME, solve)
    git(checkout, "commit", "-qam", "my answers")
    assert run(checkout)[0].endswith("built anew from source/01_small.py")
    after = everything(checkout)
    assert after.pop(f"my/{FOLDER}/{NAME}") == mine
    assert after == before


def test_only_the_named_lesson_is_reset(notebooks):
    (notebooks / "source" / "02_other.py").write_text(LESSON)
    mine = edit(notebooks / NAME, solve)
    done = [line.partition(":")[0] for line in run(notebooks, only="02")]
    assert done == ["02_other.ipynb", "solutions/02_other.ipynb"]
    assert (notebooks / NAME).read_bytes() == mine
    with pytest.raises(ValueError, match="no lesson's name begins with '03'"):
        run(notebooks, only="03")


def test_a_number_is_a_lessons(notebooks):
    for name in ("09_nine", "10_ten"):
        (notebooks / "source" / f"{name}.py").write_text(LESSON)
    for only, names in {"1": ["01_small"], "9": ["09_nine"], "10": ["10_ten"], "09_n": ["09_nine"]}.items():
        assert [one.source.stem for one in reset.lessons(notebooks, only)] == [name for name in names for _ in "12"]
    assert reset.lessons(notebooks, "0") == reset.lessons(notebooks, "xx") == []


def test_a_link_is_replaced_and_what_it_leads_to_is_left_alone(checkout, tmp_path):
    before = everything(checkout)
    mine, elsewhere = edit(checkout / NAME, solve), tmp_path / "elsewhere.ipynb"
    (checkout / NAME).rename(elsewhere)
    (checkout / NAME).symlink_to(elsewhere)
    run(checkout)
    after = everything(checkout)
    assert after.pop(f"my/{FOLDER}/{NAME}") == mine == elsewhere.read_bytes()
    assert after == before and not (checkout / NAME).is_symlink()


def test_a_folder_in_its_place_is_left_alone(notebooks):
    (notebooks / NAME).unlink()
    (notebooks / NAME).mkdir()
    (line, well), (_, other) = reset.reset(notebooks, now=NOW, build=write)
    assert not well and other and line.startswith(f"{NAME}: NOT reset: ") and "directory" in line
    assert (notebooks / NAME).is_dir()


def test_a_file_that_cannot_be_written_whole_leaves_no_half(notebooks, monkeypatch):
    mine = edit(notebooks / NAME, solve)
    monkeypatch.setattr(reset.os, "replace", lambda *_: (_ for _ in ()).throw(OSError("no room")))
    with pytest.raises(OSError, match="no room"):
        reset.put(notebooks / NAME, b"fresh")
    assert (notebooks / NAME).read_bytes() == mine and not list(notebooks.glob(".*.new"))


@pytest.mark.parametrize("state", ["staged", "merging", "detached", "shallow", "renamed"])
def test_whatever_git_is_in_the_middle_of(checkout, tmp_path, state):
    """The lesson comes back from the last commit, the copy is the learner's, and the index is left alone."""
    before = everything(checkout)
    if state == "merging":
        git(checkout, "checkout", "-qb", "theirs")
        edit(checkout / NAME, solve)
        git(checkout, "commit", "-qam", "theirs")
        git(checkout, "checkout", "-q", "-")
        edit(checkout / NAME, add)
        git(checkout, "commit", "-qam", "ours")
        subprocess.run(["git", "-c", "user.name=n", "-c", "user.email=e@x", "merge", "theirs"], cwd=checkout)
        mine = (checkout / NAME).read_bytes()
    else:
        if state == "detached":
            git(checkout, "checkout", "-q", "--detach")
        if state == "shallow":
            git(tmp_path, "clone", "-q", "--depth", "1", f"file://{checkout.parent}", "shallow")
            shutil.copytree(checkout / "my", tmp_path / "shallow" / "notebooks" / "my")
            (tmp_path / "shallow" / "notebooks" / "Untitled.ipynb").write_text("{}")
            checkout = tmp_path / "shallow" / "notebooks"
        mine = edit(checkout / NAME, solve)
        if state == "staged":
            git(checkout, "add", NAME)
        if state == "renamed":
            (checkout / NAME).rename(checkout / "mine.ipynb")
    index = git(checkout, "ls-files", "--stage")
    run(checkout)
    after = everything(checkout)
    assert after.pop("mine.ipynb" if state == "renamed" else f"my/{FOLDER}/{NAME}") == mine
    assert after == before and git(checkout, "ls-files", "--stage") == index


def test_where_no_copy_can_be_kept_nothing_is_put_back(notebooks):
    mine = edit(notebooks / NAME, solve)
    shutil.rmtree(notebooks / "my")
    (notebooks / "my").write_text("a file where the folder should be")
    (line, well), _ = reset.reset(notebooks, now=NOW, build=write)
    assert not well and line.startswith(f"{NAME}: NOT reset: ")
    assert (notebooks / NAME).read_bytes() == mine


def test_which_cells_were_changed(notebooks):
    lesson = reset.lessons(notebooks)[0]
    assert lesson.changes() == [] and lesson.state() == reset.SAME
    edit(notebooks / NAME, lambda cells: (reword(cells), solve(cells), add(cells)))
    count = len(build.render("01_small", LESSON, False).cells)
    assert lesson.changes() == [1, count, count + 1] and lesson.state() == reset.CHANGED


def test_as_a_command_it_builds_with_the_real_builder(bare):
    """One notebook, one kernel: what make reset does where there is no git."""
    edit(bare / NAME, solve)
    command = [sys.executable, HOUSE / "tools" / "reset.py", "--notebooks", bare]
    done = subprocess.run([*command, "--only", "01"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "01_small.ipynb: changed, yours is kept as notebooks/my/" in done.stdout
    assert reset.lessons(bare)[0].state() == reset.SAME
    wrong = subprocess.run([*command, "--only", "99"], capture_output=True, text=True)
    assert wrong.returncode == 1 and "begins with '99'" in wrong.stderr
