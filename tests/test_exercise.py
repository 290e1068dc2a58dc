"""Verdicts say why, hints come in order, and what is not filled in is not judged."""

import copy
import functools

import pytest
from torch import nn

from recompute_lab.lessons.exercise import NOT_ATTEMPTED, RIGHT, WRONG, Exercises, Hints, Verdict, Wrong, is_stub

exercises = Exercises()


@exercises.add("think", "compute", "it is 2")
def one_and_one(answer):
    if answer != 2:
        raise Wrong(f"1 + 1 is not {answer}: count your fingers")
    return "one and one is two"


@exercises.add()
def call_it(function):
    return f"it gave {function()}"


@exercises.add("a hint")
def table(answer):
    return "a table"


def stub(): ...


def documented_stub(x, y=1):
    """What to do."""
    ...


def passing():
    pass


def only_documented():
    """What to do."""


def returning_none(x):
    return None


def closed_over():
    x = 1

    def inner():
        x if False else ...  # noqa: B018
        ...

    def plain(): ...

    return plain


class StubbedCap(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x): ...


class DoneCap(nn.Module):
    def forward(self, x):
        return x


def answer_of_one():
    return 1


def doubling(x):
    return 2 * x


@pytest.mark.parametrize(
    "answer",
    [
        ...,
        None,
        stub,
        documented_stub,
        passing,
        only_documented,
        returning_none,
        closed_over(),
        lambda: ...,
        lambda: None,
    ]
    + [StubbedCap().forward],
)
def test_stubs(answer):
    assert is_stub(answer)
    assert exercises.table.judge(answer).status == NOT_ATTEMPTED


@pytest.mark.parametrize(
    "answer",
    [0, False, "", [], {}, answer_of_one, doubling, lambda: 0, lambda x: x, len, functools.partial(stub), DoneCap],
)
def test_what_is_no_stub(answer):
    assert not is_stub(answer)
    assert exercises.table.judge(answer).status == RIGHT


@pytest.mark.parametrize("answer", [{"a": 1, "b": ...}, {"f": stub}, [1, None], (..., 2), StubbedCap])
def test_a_stub_in_a_table_or_class(answer):
    assert exercises.table.judge(answer).status == NOT_ATTEMPTED


def test_verdicts():
    assert exercises.one_and_one.judge(2) == Verdict(RIGHT, "one and one is two")
    assert exercises.one_and_one.judge(3) == Verdict(WRONG, "1 + 1 is not 3: count your fingers")
    verdict = exercises.one_and_one.judge(...)
    assert verdict.status == NOT_ATTEMPTED and "hint.one_and_one()" in verdict.message


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ValueError("first line\nsecond line"), "your answer raised ValueError: first line"),
        (KeyError(), "your answer raised KeyError"),
        (AssertionError("no"), "your answer raised AssertionError: no"),
    ],
)
def test_an_answer_that_raises(error, message):
    def answer():
        raise error

    assert exercises.call_it.judge(answer) == Verdict(WRONG, message)


def test_an_interrupt_is_no_answer():
    def answer():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        exercises.call_it.judge(answer)


def test_the_wrong_number_of_answers_is_said():
    assert "TypeError" in exercises.one_and_one.judge().message


def test_calling_prints_the_verdict(capsys):
    assert exercises.one_and_one(3) is None
    assert capsys.readouterr().out == "not yet: 1 + 1 is not 3: count your fingers\n"
    assert str(Verdict(RIGHT)) == "right"
    assert max(map(len, str(Verdict(WRONG, "word " * 60)).splitlines())) <= 100


def test_hints_come_in_order_and_the_last_again(capsys):
    hint = Hints(exercises)
    for _ in range(4):
        hint.one_and_one()
    hint.table()
    hint.call_it()
    Hints(exercises).one_and_one()
    assert capsys.readouterr().out.splitlines() == [
        "hint 1 of 3: think", "hint 2 of 3: compute", "hint 3 of 3: it is 2", "hint 3 of 3: it is 2",
        "hint 1 of 1: a hint", "there is no hint for call_it", "hint 1 of 3: think",
    ]  # fmt: skip


@pytest.mark.parametrize("place", [exercises, Hints(exercises)])
def test_an_unknown_name_lists_the_names(place):
    with pytest.raises(AttributeError, match="no exercise 'two'.*one_and_one, call_it, table"):
        place.two  # noqa: B018
    assert {"one_and_one", "call_it", "table"} <= set(dir(place))


@pytest.mark.parametrize("place", [exercises, Hints(exercises)])
def test_copies_work(place):
    assert copy.copy(place).table is not None


def test_a_function_that_does_nothing_in_a_right_answer():
    exercises = Exercises()

    @exercises.add()
    def answers(answer):
        if answer() != 3:
            raise Wrong("3, please")
        return "it is"

    def right():
        def idle(): ...

        return 3 + (idle() or 0)

    def open_inside():
        def inner(): ...

        return inner()

    assert [exercises.answers.judge(f).status for f in (right, open_inside)] == [RIGHT, NOT_ATTEMPTED]
