"""When a card comes back: FSRS-6, by the library of its authors, over the gradings in the learner's journal.

The rule estimates for each card how long it is remembered, and brings it back when the chance to know it has fallen to
nine in ten. Source: J. Ye, J. Su, Y. Cao, "A Stochastic Shortest Path Algorithm for Optimizing Spaced Repetition
Scheduling", KDD 2022; open-spaced-repetition/py-fsrs.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from recompute_lab.lessons.progress import GRADES, Graded

if TYPE_CHECKING:
    from recompute_lab.lessons.cards import Card


_AHEAD = timedelta(days=1)  # no machine's clock that is right is further ahead than that


def due_times(gradings: Iterable[Graded], now: datetime | None = None) -> dict[str, datetime]:
    """When each graded card is due (UTC), by its id.

    A grading of more than a day after `now` does not count, where that is given: a clock was wrong, and the card would
    stay away until then.
    """
    from fsrs import Card as Memory
    from fsrs import Rating, Scheduler

    scheduler, memories = Scheduler(enable_fuzzing=False), {}  # the same gradings, the same times
    for grading in sorted(gradings, key=lambda g: g.at):
        if now is not None and grading.at > now + _AHEAD:
            break
        memory = memories.get(grading.card) or Memory(card_id=0, due=grading.at)
        rating = Rating(1 + GRADES.index(grading.grade))
        memories[grading.card], _ = scheduler.review_card(memory, rating, grading.at)
    return {card: memory.due for card, memory in memories.items()}


def intervals(grades: Iterable[str]) -> list[timedelta]:
    """How long a card stays away after each of these grades, where it is answered as soon as it is due."""
    at, gradings, away = datetime(2000, 1, 1, tzinfo=UTC), [], []
    for grade in grades:
        gradings.append(Graded("", grade, at))
        due = due_times(gradings)[""]
        away.append(due - at)
        at = due
    return away


def order(cards: Iterable[Card], gradings: Iterable[Graded], now: datetime, skipped: Iterable[str] = ()) -> list[Card]:
    """The cards as they are drawn: due ones, the most overdue first; unseen ones; the others, by when they are due.

    What was skipped comes last, in the order in which it was. Gradings of cards that are not among `cards` are ignored.
    """
    due, late = due_times(gradings, now), {card: number for number, card in enumerate(skipped, 1)}

    def place(card: Card) -> tuple:
        when = due.get(card.id)
        kind = 1 if when is None else 0 if when <= now else 2
        return late.get(card.id, 0), kind, when or now

    return sorted(cards, key=place)


def suggested(good: tuple[int, int], senior: tuple[int, int]) -> str:
    """The grade for (said, all) of a rubric's good points, and of its senior ones.

    The points that were not said decide: fewer than half of the good ones, Again; not all of them, Hard; all of them,
    Good; and all senior ones besides, Easy.
    """
    (said, points), (more, most) = good, senior
    if 2 * said < points:
        return "Again"
    if said < points:
        return "Hard"
    return "Easy" if more == most else "Good"


def in_words(interval: timedelta) -> str:
    """A time from now, as one says it: "now", "in 10 minutes", "in 3 days", "in about 4 months"."""
    minutes = round(interval.total_seconds() / 60)
    if minutes < 1:
        return "now" if interval <= timedelta(0) else "in less than a minute"
    for unit, size, most in (("minute", 1, 90), ("hour", 60, 36 * 60), ("day", 24 * 60, 60 * 24 * 60)):
        if minutes < most:
            return f"in {_counted(round(minutes / size), unit)}"
    months = round(minutes / (24 * 60 * 30.44))
    return (
        f"in about {_counted(months, 'month')}" if months < 24 else f"in about {_counted(round(months / 12), 'year')}"
    )


def _counted(number: int, unit: str) -> str:
    return f"{number} {unit}" + ("" if number == 1 else "s")
