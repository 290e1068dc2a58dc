"""The stored notebooks are what their sources give, and fit to be compared by nbval.

nbval itself runs in make test, after this.
"""

import re
from itertools import pairwise

import build
import checks
import ignored
import nbformat
import pytest

from recompute_lab.lessons.exercise import NOT_ATTEMPTED, RIGHT, WRONG

LESSONS = build.sources()

def test_there_are_lessons():
    assert LESSONS, "notebooks/source holds no lesson: there is nothing to check"


def test_every_notebook_has_a_source():
    assert not [problem for problem in checks.check_all(build.ROOT) if "has no source" in problem]


@pytest.mark.parametrize("source", LESSONS, ids=lambda source: source.stem)
def test_lesson(source):
    problems = checks.check_lesson(build.ROOT, source)
    assert not problems, "\n" + "\n".join(problems)


@pytest.mark.parametrize("source", LESSONS, ids=lambda source: source.stem)
@pytest.mark.parametrize("folder", [".", "solutions"])
def test_the_cells_that_nbval_ignores_are_those_agreed_on(source, folder):
    notebook = nbformat.read(build.ROOT / folder / f"{source.stem}.ipynb", as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    hidden = [(cell, after) for cell, after in pairwise(code) if checks.is_ignored(cell)]
    agreed = ignored.AGREED.get(source.stem, ())
    assert len(hidden) == len(agreed), (
        f"{source.stem} has {len(hidden)} cells tagged {checks.IGNORE}, notebooks/ignored.py says {len(agreed)}. What "
        "such a cell shows can go wrong and no test will say so: can it be rounded, compared (a < b) or drawn instead?"
    )
    for (cell, after), one in zip(hidden, agreed, strict=True):
        assert not (problem := ignored.problem(source.stem, notebook, cell, cell.outputs)), problem
        assert one.then in checks.text_of(after), f"the cell after '{one.shows[:40]}' prints no '{one.then}'"


@pytest.mark.parametrize("source", LESSONS, ids=lambda source: source.stem)
@pytest.mark.parametrize(("folder", "verdict"), [(".", NOT_ATTEMPTED), ("solutions", RIGHT)])
def test_exercises_are_open_for_the_learner_and_right_where_solved(source, folder, verdict):
    notebook = nbformat.read(build.ROOT / folder / f"{source.stem}.ipynb", as_version=4)
    exercises = [cell for cell in notebook.cells if "solution" in cell.metadata.get("tags", [])]
    assert exercises
    for cell in exercises:
        verdicts = re.findall(f"^({RIGHT}|{WRONG}|{NOT_ATTEMPTED})\\b", checks.text_of(cell), re.MULTILINE)
        assert verdicts == [verdict] * cell.source.count("check."), cell.source
