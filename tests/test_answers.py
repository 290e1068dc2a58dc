"""Every exercise of every lesson: its right answers pass, and each wrong one is told what helps whoever gave it."""

import ast
import functools
import importlib
import random
from collections import Counter
from pathlib import Path

import jupytext
import numpy as np
import pytest
import torch
from answers.answers import Answers

from recompute_lab.instruments.state import equal_values
from recompute_lab.lessons.exercise import NOT_ATTEMPTED, RIGHT, WRONG, Exercise
from recompute_lab.specimens.digits import digit_sequences

TESTS = Path(__file__).resolve().parent
LESSONS = {path.stem[-2:]: path.stem for path in sorted((TESTS / "answers").glob("lesson_*.py"))}
SOURCES = {path.name[:2]: path for path in sorted((TESTS.parent / "notebooks" / "source").glob("[0-9][0-9]_*.py"))}
MOST_WORDS = 60  # of a hint: it is read in the middle of a thought
RAISED = "your answer raised "


def called(source: Path) -> set[str]:
    """The exercises that are called, as in `check.NAME(...)`, in the code of a lesson."""
    cells = jupytext.reads(source.read_text(encoding="utf-8"), fmt="py:percent").cells
    nodes = [node for cell in cells if cell.cell_type == "code" for node in ast.walk(ast.parse(cell.source))]
    calls = [node.func for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)]
    return {call.attr for call in calls if isinstance(call.value, ast.Name) and call.value.id == "check"}


def table(number: str):
    return importlib.import_module(f"answers.{LESSONS[number]}")


def answers(number: str) -> dict[str, Answers]:
    return table(number).ANSWERS


def exercises(number: str) -> dict[str, Exercise]:
    """All exercises of a lesson, by name. An exercise of two collections is a mistake."""
    of = table(number).EXERCISES
    found = [exercise for each in (of if isinstance(of, list | tuple) else [of]) for exercise in each.all.items()]
    assert len(dict(found)) == len(found), f"lesson {number} has two exercises of one name"
    return dict(found)


EACH = [(number, name) for number in LESSONS for name in answers(number)]
EVERY_RIGHT = [(*each, i) for each in EACH for i in range(len(answers(each[0])[each[1]].right))]
EVERY_WRONG = [(*each, i) for each in EACH for i in range(len(answers(each[0])[each[1]].wrong))]


def parametrised(names: str, values: list):
    return pytest.mark.parametrize(names, values, ids=["-".join(map(str, value)) for value in values])


@pytest.fixture(scope="module", autouse=True)
def imported():
    """To import scikit-learn moves Python's stream, once."""
    digit_sequences()


def world(number: str) -> list:
    """What a check must leave as it was: streams, torch's switches, and what the lesson's own answers write to."""
    switches = torch.is_grad_enabled(), torch.get_default_dtype(), torch.are_deterministic_algorithms_enabled()
    streams = torch.get_rng_state(), [np.random.get_state()], [random.getstate()]
    state = getattr(table(number), "state", lambda: None)()
    return [*switches, torch.get_num_threads(), torch.is_autocast_enabled("cpu"), *streams, state]


@functools.cache
def judged(number: str, name: str, kind: str, i: int):
    """The verdict on one answer, and a look whether the check has left the world as it was."""
    given = getattr(answers(number)[name], kind)[i]
    answer, before = given if kind == "right" else given[0], world(number)
    verdict = exercises(number)[name].judge(*answer)
    assert equal_values(world(number), before), "the check, or the answer in it, has left something changed"
    return verdict


@parametrised("number, name, i", EVERY_RIGHT)
def test_a_right_answer_passes(number, name, i):
    verdict = judged(number, name, "right", i)
    assert verdict.status == RIGHT and verdict.message, verdict


@parametrised("number, name, i", EVERY_WRONG)
def test_a_wrong_answer_is_told_why(number, name, i):
    part, verdict = answers(number)[name].wrong[i][1], judged(number, name, "wrong", i)
    assert verdict.status == WRONG and part and part in verdict.message, verdict


@parametrised("number, name", EACH)
def test_each_has_answers_enough_and_they_are_told_different_things(number, name):
    """Two different things at least, and at most one of the answers is wrong because it raised."""
    right, wrong = answers(number)[name].right, answers(number)[name].wrong
    parts = [part for _, part in wrong]
    assert len(right) >= 1 and len(wrong) >= 2 and len(set(parts)) >= 2
    assert all(isinstance(answer, tuple) for answer in [*right, *(answer for answer, _ in wrong)])
    messages = [judged(number, name, "wrong", i).message for i in range(len(wrong))]
    assert sum(message.startswith(RAISED) for message in messages) <= 1
    assert len(set(messages)) >= 2


def unfilled(*arguments): ...


def emptied(answer):
    """The answer's form, with nothing in it."""
    if isinstance(answer, dict):
        return dict.fromkeys(answer, ...)
    if isinstance(answer, list | tuple) and any(map(callable, answer)):
        return tuple(unfilled for _ in answer)
    return unfilled if callable(answer) else ...


@parametrised("number, name", EACH)
def test_what_is_not_filled_in_is_not_judged(number, name):
    exercise = exercises(number)[name]
    for answer in answers(number)[name].right:
        for stub in ([...] * len(answer), map(emptied, answer)):
            assert exercise.judge(*stub).status == NOT_ATTEMPTED


@parametrised("number, name", EACH)
def test_hints_are_short(number, name):
    hints = exercises(number)[name].hints
    assert len(hints) >= 2 and all(0 < len(hint.split()) <= MOST_WORDS for hint in hints)
    assert len(set(hints)) == len(hints)


# --- None is left out


@pytest.mark.parametrize("number", SOURCES)
def test_every_exercise_that_a_lesson_calls_has_answers_and_no_other(number):
    asked = called(SOURCES[number])
    if number not in LESSONS:
        assert not asked, f"tests/answers has no table for lesson {number}, which asks {', '.join(sorted(asked))}"
        return
    for what, there in (("table in tests/answers", answers(number)), ("check", exercises(number))):
        assert not asked - there.keys(), f"lesson {number} has no {what} for {', '.join(sorted(asked - there.keys()))}"
        assert not there.keys() - asked, f"lesson {number} never calls {', '.join(sorted(there.keys() - asked))}"


def test_the_count(record_property):
    """As many exercises are judged as the lessons' sources call, each with two wrong answers and a right one."""
    asked = sum(len(called(source)) for source in SOURCES.values())
    right, wrong = (Counter(each[:2] for each in found) for found in (EVERY_RIGHT, EVERY_WRONG))
    assert LESSONS.keys() <= SOURCES.keys()
    assert len(EACH) == len(right) == len(wrong) == asked
    assert min(right.values()) >= 1 and min(wrong.values()) >= 2
    print(f"{asked} exercises, {right.total()} right answers, {wrong.total()} wrong ones")
    record_property("exercises", asked)
