"""Lesson 09: wrong answers are told why, its rubric is shown elsewhere, and the figure says what the rule does."""

import ast
import shutil
from datetime import timedelta
from pathlib import Path

import build
import pytest
from answers.lesson_09 import ANSWERS, CARD, EXERCISES

from recompute_lab.lessons import interview
from recompute_lab.lessons.cards import Point, load
from recompute_lab.lessons.exercise import NOT_ATTEMPTED, RIGHT, WRONG
from recompute_lab.lessons.spacing import intervals
from recompute_lab.views.spacing import run_of_intervals
from recompute_lab.views.style import png

TESTS = Path(__file__).parent


def test_every_exercise_has_answers_and_hints():
    assert set(ANSWERS) == set(EXERCISES.all)
    assert all(len(exercise.hints) >= 2 for exercise in EXERCISES.all.values())


@pytest.mark.parametrize("name", ANSWERS)
def test_right_answers(name):
    for answer in ANSWERS[name].right:
        verdict = EXERCISES.all[name].judge(*answer)
        assert verdict.status == RIGHT, verdict


@pytest.mark.parametrize(("name", "answer", "part"), [(n, *wrong) for n, a in ANSWERS.items() for wrong in a.wrong])
def test_wrong_answers_are_told_why(name, answer, part):
    verdict = EXERCISES.all[name].judge(*answer)
    assert verdict.status == WRONG and part in verdict.message, verdict


def test_what_is_not_filled_in_is_not_judged():
    assert EXERCISES.own_card.judge(CARD | {"question": ...}).status == NOT_ATTEMPTED
    assert EXERCISES.grade_answers.judge({"A": (..., ...)}).status == NOT_ATTEMPTED
    assert EXERCISES.first_hour.judge(...).status == NOT_ATTEMPTED


def test_a_card_of_the_course_is_not_ones_own():
    verdict = EXERCISES.own_card.judge(CARD | {"id": load().cards[0].id})
    assert verdict.status == WRONG and "is a card of the course already" in verdict.message


def test_the_points_of_the_rubric_are_shown():
    for point in interview.POINTS.values():
        if "::" in point.shown_by:
            file, _, name = point.shown_by.partition("::")
            functions = ast.parse((TESTS.parent / file).read_text(encoding="utf-8")).body
            assert name in {node.name for node in functions if isinstance(node, ast.FunctionDef)}
        elif not point.advice:
            assert interview.printed(point) is True, point


def test_a_quote_is_looked_up_where_the_notebooks_are(tmp_path):
    point = Point("It is so.", "04_dropout.ipynb: gradients silent")
    assert interview.printed(point) is True
    assert interview.printed(point, tmp_path) is None, "an installed package has no notebooks"
    (tmp_path / "source").mkdir()
    assert interview.printed(point, tmp_path) is False, "no such notebook"
    shutil.copy(build.ROOT / "04_dropout.ipynb", tmp_path)
    assert interview.printed(point, tmp_path) is True
    (tmp_path / "solutions").mkdir()
    (tmp_path / "04_dropout.ipynb").rename(tmp_path / "solutions" / "04_dropout.ipynb")
    assert interview.printed(point, tmp_path) is True, "the learner's outputs may be cleared"
    assert interview.printed(Point("x", "tests/test_x.py::test_it"), tmp_path) is None


def test_the_grades_of_the_written_answers_follow_the_rule():
    assert [interview.grade_of(points) for points in ({1}, {1, 3}, {1, 2, 3, 4}, {1, 2, 3, 4, 5})] == [
        "Again",
        "Hard",
        "Good",
        "Easy",
    ]


def test_what_the_lesson_says_of_the_rule():
    new, day = intervals(["Good"] * 6), timedelta(days=1)
    assert all(3 <= later / sooner <= 6 for sooner, later in zip(new[1:], new[2:], strict=False))
    failed = intervals(["Good"] * 3 + ["Again"] + ["Good"] * 2)
    assert failed[3:5] == new[:2] and (failed[5], new[2]) == (5 * day, 11 * day)
    assert max(intervals(["Hard"] * 6) + intervals(["Again"] * 6)) < timedelta(minutes=7)


def test_the_points_of_the_deck_are_counted():
    assert interview.facts_and_judgements([interview.NUMPY_MASK]) == (4, 1)


def test_the_figure_has_a_line_for_each_run():
    runs = {grade: intervals([grade] * 6) for grade in ("Again", "Hard", "Good", "Easy")}
    made = run_of_intervals(runs)
    (axes,) = made.axes
    assert [text.get_text() for text in axes.texts] == list(runs)
    for line, away in zip(axes.lines, runs.values(), strict=True):
        assert list(line.get_ydata()) == [one / timedelta(minutes=1) for one in away]
    assert png(made)
