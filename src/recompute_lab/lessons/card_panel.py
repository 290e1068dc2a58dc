"""Lesson 09's panel: the deck, the learner's journal and the spacing rule, behind the controls."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from recompute_lab.lessons import spacing
from recompute_lab.lessons.cards import LEVELS, Card, Deck, load
from recompute_lab.lessons.progress import NOT_KEPT, Graded, Journal, session_journal, utc_now
from recompute_lab.views.card_panel import CardPanel


class Practice:
    """Cards in the order in which they are due; grades go into the journal. `clock` gives the time, in UTC."""

    def __init__(self, deck: Deck, journal: Journal, clock: Callable[[], datetime] = utc_now):
        self.deck, self.journal, self._clock, self._skipped = deck, journal, clock, []
        self.topics = [(f"All topics ({len(deck.cards)})", "")]
        self.topics += [(f"{title} ({len(deck.choose(name))})", name) for name, title in deck.topics.items()]
        self.levels = [("All levels", ""), *((level, level) for level in LEVELS)]

    def draw(self, topic: str, level: str) -> Card | None:
        cards = self.deck.choose(topic, level)
        return next(iter(spacing.order(cards, self._gradings(), self._clock(), self._skipped)), None)

    def skip(self, card: Card) -> None:
        self._skipped = [other for other in self._skipped if other != card.id] + [card.id]

    def suggested(self, good: tuple[int, int], senior: tuple[int, int]) -> str:
        return spacing.suggested(good, senior)

    def grade(self, card: Card, grade: str, said: int, of: int, seconds: int) -> str:
        now = self._clock()
        self.journal.append(Graded(card.id, grade, now, said, of, seconds))
        self._skipped = [other for other in self._skipped if other != card.id]
        back = spacing.in_words(spacing.due_times(self._gradings(), now)[card.id] - now)
        return f"Graded {grade}. This card comes back {back}."

    def waiting(self, topic: str, level: str) -> str:
        cards, now = self.deck.choose(topic, level), self._clock()
        if not cards:
            return "No card has this topic and level."
        due = spacing.due_times(self._gradings(), now)
        ready = sum(due[card.id] <= now for card in cards if card.id in due)
        unseen = sum(card.id not in due for card in cards)
        later = len(cards) - ready - unseen
        return f"Of {len(cards)} card{'s' * (len(cards) > 1)}, {ready} due, {unseen} not seen yet, {later} for later."

    def notes(self) -> list[str]:
        return self.journal.notes() + ([NOT_KEPT] if self.journal.path is None else [])

    def _gradings(self) -> list[Graded]:
        return [event for event in self.journal.events() if isinstance(event, Graded)]


def panel(deck: Deck | None = None, journal: Journal | None = None) -> CardPanel:
    """The panel, on the course's cards and the journal of this session."""
    return CardPanel(Practice(deck or load(), journal or session_journal()))
