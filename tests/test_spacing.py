"""When a card comes back, and which one is drawn first."""

from datetime import UTC, datetime, timedelta

import pytest
from sample_cards import sample_deck

from recompute_lab.lessons.progress import GRADES, Graded
from recompute_lab.lessons.spacing import due_times, in_words, intervals, order, suggested

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
DAY = timedelta(days=1)


def run(*grades: str) -> timedelta:
    """How long a card stays away after these grades; each is given when the card is due."""
    return intervals(grades)[-1]


def test_a_worse_grade_brings_a_card_back_sooner():
    first = [run(grade) for grade in GRADES]
    assert first == sorted(set(first))
    later = [run("Good", "Good", "Good", grade) for grade in GRADES]
    assert later == sorted(set(later)) and later[0] < timedelta(hours=1) < later[1]


def test_intervals_grow_and_fall_back():
    grown = [run(*["Good"] * n) for n in range(1, 7)]
    assert grown == sorted(set(grown)) and grown[-1] > 20 * grown[2]
    assert run("Good", "Good", "Good", "Again") < DAY
    assert run("Good", "Good", "Good", "Again", "Good") < run("Good", "Good", "Good", "Good")


def test_intervals_are_those_from_one_grading_to_the_next():
    first, second = intervals(("Good", "Hard"))
    gradings = [Graded("x", "Good", NOON), Graded("x", "Hard", NOON + first)]
    assert due_times(gradings[:1])["x"] == NOON + first
    assert due_times(gradings)["x"] == NOON + first + second


def test_the_same_gradings_give_the_same_times_in_any_order():
    gradings = [Graded("x", grade, NOON + n * DAY) for n, grade in enumerate(("Again", "Good", "Good", "Easy"))]
    other = [Graded("y", "Good", NOON)]
    assert due_times(gradings + other) == due_times(other + gradings[::-1])
    assert due_times(gradings)["x"].tzinfo is UTC


def test_a_clock_that_was_put_back_breaks_nothing():
    assert due_times([Graded("x", "Good", NOON), Graded("x", "Good", NOON - DAY)])["x"] > NOON - DAY


def test_due_ones_come_first_then_unseen_ones_then_the_others(tmp_path):
    cards = sample_deck(tmp_path).cards
    gradings = [
        Graded("streams", "Easy", NOON),  # in some days
        Graded("early-stop", "Again", NOON - timedelta(hours=2)),  # due, and longer
        Graded("lost-mask", "Again", NOON - timedelta(hours=1)),  # due
        Graded("seed-once", "Good", NOON),  # in ten minutes
        Graded("no-such-card", "Again", NOON - DAY),
    ]
    drawn = [card.id for card in order(cards, gradings, NOON)]
    assert drawn == ["early-stop", "lost-mask", "what-runs-twice", "count-of-tensors", "seed-once", "streams"]
    skipped = [card.id for card in order(cards, gradings, NOON, skipped=["early-stop", "what-runs-twice"])]
    assert skipped[-2:] == ["early-stop", "what-runs-twice"] and skipped[0] == "lost-mask"
    much_later = [card.id for card in order(cards, gradings, NOON + 1000 * DAY)]
    assert much_later[:4] == ["early-stop", "lost-mask", "seed-once", "streams"]


def test_a_grading_of_a_clock_that_was_wrong_keeps_no_card_away():
    wrong, right = Graded("streams", "Easy", NOON + 40_000 * DAY), Graded("streams", "Good", NOON)
    assert due_times([wrong], NOON) == {} and due_times([wrong, right], NOON) == due_times([right])
    soon = Graded("streams", "Good", NOON + timedelta(hours=20))  # a merged journal, and two clocks
    assert due_times([soon], NOON) == due_times([soon]) != {}


@pytest.mark.parametrize(
    ("good", "senior", "grade"),
    [
        ((0, 3), (2, 2), "Again"),
        ((1, 3), (0, 2), "Again"),
        ((2, 4), (0, 2), "Hard"),
        ((2, 3), (2, 2), "Hard"),
        ((3, 3), (0, 2), "Good"),
        ((3, 3), (1, 2), "Good"),
        ((3, 3), (2, 2), "Easy"),
        ((0, 1), (1, 1), "Again"),
    ],
)
def test_the_points_that_were_not_said_decide(good, senior, grade):
    assert suggested(good, senior) == grade


@pytest.mark.parametrize(
    ("interval", "said"),
    [
        (timedelta(minutes=-5), "now"),
        (timedelta(0), "now"),
        (timedelta(seconds=20), "in less than a minute"),
        (timedelta(minutes=1), "in 1 minute"),
        (timedelta(minutes=10), "in 10 minutes"),
        (timedelta(hours=2), "in 2 hours"),
        (2 * DAY, "in 2 days"),
        (8 * DAY, "in 8 days"),
        (120 * DAY, "in about 4 months"),
        (1000 * DAY, "in about 3 years"),
    ],
)
def test_intervals_in_words(interval, said):
    assert in_words(interval) == said
