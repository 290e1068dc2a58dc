"""The stored notebooks are what their sources give, and fit to be compared by nbval.

nbval itself runs in make test, after this.
"""

import re

import build
import checks
import nbformat
import pytest

from recompute_lab.lessons.exercise import NOT_ATTEMPTED, RIGHT, WRONG

LESSONS = build.sources()

# How many cells of a lesson nbval runs without comparing what they print.
IGNORED: dict[str, int] = {
    "00_start_here": 1,
    "01_the_crash": 4,
    "02_the_threshold": 3,
    "03_loud_or_silent": 3,
    "04_dropout": 2,
    "05_batchnorm": 1,
    "06_audit_your_source": 1,
    "07_quiet_version": 3,
    "08_field_guide": 1,
    "10_coding_drills": 1,
}


def test_there_are_lessons():
    assert LESSONS, "notebooks/source holds no lesson: there is nothing to check"


def test_every_notebook_has_a_source():
    assert not [problem for problem in checks.check_all(build.ROOT) if "has no source" in problem]


@pytest.mark.parametrize("source", LESSONS, ids=lambda source: source.stem)
def test_lesson(source):
    problems = checks.check_lesson(build.ROOT, source)
    assert not problems, "\n" + "\n".join(problems)


@pytest.mark.parametrize("source", LESSONS, ids=lambda source: source.stem)
def test_no_more_cells_are_ignored_than_we_agreed_on(source):
    notebook = nbformat.read(build.ROOT / f"{source.stem}.ipynb", as_version=4)
    ignored = sum(checks.is_ignored(cell) for cell in notebook.cells)
    agreed = IGNORED.get(source.stem, 0)
    assert ignored == agreed, (
        f"{source.stem} has {ignored} cells tagged {checks.IGNORE}, IGNORED in {__file__} says "
        f"{agreed}. What such a cell shows can go wrong and no test will say so: can it be rounded,"
        f" compared (a < b) or drawn instead? If not, write {ignored} into IGNORED."
    )


@pytest.mark.parametrize("source", LESSONS, ids=lambda source: source.stem)
@pytest.mark.parametrize(("folder", "verdict"), [(".", NOT_ATTEMPTED), ("solutions", RIGHT)])
def test_exercises_are_open_for_the_learner_and_right_where_solved(source, folder, verdict):
    notebook = nbformat.read(build.ROOT / folder / f"{source.stem}.ipynb", as_version=4)
    exercises = [cell for cell in notebook.cells if "solution" in cell.metadata.get("tags", [])]
    assert exercises
    for cell in exercises:
        verdicts = re.findall(f"^({RIGHT}|{WRONG}|{NOT_ATTEMPTED})\\b", checks.text_of(cell), re.MULTILINE)
        assert verdicts == [verdict] * cell.source.count("check."), cell.source
