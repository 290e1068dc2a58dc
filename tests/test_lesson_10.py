"""Lesson 10: each drill accepts what is right, and says what is wrong with what is not."""

import pytest
from answers.lesson_10 import ANSWERS

from recompute_lab.lessons.drills import check
from recompute_lab.lessons.exercise import RIGHT, WRONG

EVERY_RIGHT = [(name, i) for name, answers in ANSWERS.items() for i in range(len(answers.right))]
EVERY_WRONG = [(name, i) for name, answers in ANSWERS.items() for i in range(len(answers.wrong))]


@pytest.mark.parametrize("name, i", EVERY_RIGHT)
def test_a_right_answer_passes(name, i):
    verdict = check.all[name].judge(*ANSWERS[name].right[i])
    assert verdict.status == RIGHT and verdict.message, verdict


@pytest.mark.parametrize("name, i", EVERY_WRONG)
def test_a_wrong_answer_is_told_why(name, i):
    answer, part = ANSWERS[name].wrong[i]
    verdict = check.all[name].judge(*answer)
    assert verdict.status == WRONG and part in verdict.message, verdict
