"""Draw an interview card, answer aloud, reveal the rubric part by part, tick what was said, grade: by keyboard alone.

One button goes through a card from its question to its follow-ups. It is never disabled or taken away, so the focus
stays on it; where the focus has to move, to the grades and back, the panel moves it.
"""

from __future__ import annotations

import html
import re
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Protocol

import ipywidgets as widgets

from recompute_lab.instruments.interrupts import uninterrupted
from recompute_lab.views.panel import Sentence, choice, failure

GRADES = ("Again", "Hard", "Good", "Easy")
NONE, QUESTION, WEAK, GOOD, SENIOR, ALL, GRADED = range(7)  # what of a card is shown
_MAIN = {
    NONE: "Draw a card",
    QUESTION: "Reveal the answer: weak",
    WEAK: "Reveal the answer: good",
    GOOD: "Reveal the answer: senior",
    SENIOR: "Follow-ups",
    ALL: "Go to the grades",
    GRADED: "Draw the next card",
}
_DAY = 24 * 3600
# Long points in several lines that hang from their box, parts that are told apart, four grades in one row or in two by
# two, and a focus that is seen in every theme. The class is named twice where ipywidgets' own rules would win.
_CSS = """<style>
.card-panel { padding: 4px; }
.card-panel.card-panel .widget-box { overflow: visible; }
.card-panel .widget-html-content { line-height: 1.5; }
.card-panel .widget-html-content ul { margin: 2px 0 0; padding-left: 20px; }
.card-panel .widget-html-content li { margin: 0; padding-left: 4px; }
.card-panel .widget-html-content li + li { margin-top: 3px; }
.card-panel .card-facts { color: var(--jp-ui-font-color2, #616161); }
.card-panel .card-question { display: block; font-size: 115%; line-height: 1.4; text-wrap: balance; }
.card-panel.card-panel .card-part {
    border-top: 1px solid var(--jp-border-color2, #bdbdbd); margin: 8px 0 0; padding: 6px 0 0;
}
.card-panel.card-panel .widget-html.card-part { padding: 6px 2px 0; }
.card-panel .card-read { margin-top: 8px; }
.card-panel .widget-checkbox { height: auto; overflow: visible; }
.card-panel .widget-checkbox label {
    display: flex; align-items: flex-start; gap: 8px;
    white-space: normal; overflow: visible; height: auto; line-height: 1.5; cursor: pointer;
}
.card-panel .widget-checkbox label input { flex: none; align-self: flex-start; margin: 0.25em 0 0 2px; }
.card-panel.card-panel .card-grades {
    display: grid; grid-template-columns: repeat(auto-fit, minmax(max(22%, min(46%, (560px - 100%) * 999)), 1fr));
}
.card-panel select { appearance: auto; background-image: none !important; }
.card-panel.card-panel.card-panel :is(button, select, input):focus-visible {
    outline: 2px solid var(--jp-ui-font-color1, black);
    outline-offset: 2px;
}
</style>"""


class Point(Protocol):
    """One thing that an answer says; advice is a judgement, all else is a fact."""

    says: str
    advice: bool


class Card(Protocol):
    """What the panel shows of a card."""

    level: str
    minutes: int
    question: str
    weak: Sequence[str]
    good: Sequence[Point]
    senior: Sequence[Point]
    follow_ups: Sequence[str]
    notebook: str
    heading: str


class Session(Protocol):
    """Where the cards come from and the grades go."""

    topics: Sequence[tuple[str, str]]  # pairs of a text and a name; the first one is the choice at first
    levels: Sequence[tuple[str, str]]

    def draw(self, topic: str, level: str) -> Card | None:
        """The card to ask next; None where there is none."""

    def skip(self, card: Card) -> None:
        """Not this one, for as long as there are others."""

    def suggested(self, good: tuple[int, int], senior: tuple[int, int]) -> str:
        """The grade for (said, all) of the good points and of the senior ones."""

    def grade(self, card: Card, grade: str, said: int, of: int, seconds: int) -> str:
        """Writes the grade down; when the card comes back, in a sentence."""

    def waiting(self, topic: str, level: str) -> str:
        """How many cards wait, in a sentence."""

    def notes(self) -> list[str]:
        """What is wrong with the learner's journal; a sentence each."""


class CardPanel(widgets.VBox):
    """The panel. Its controls are attributes: `topic`, `level`, `main`, `skip`, `pause`, `points`, `grades`."""

    def __init__(self, session: Session):
        self._session, self._working = session, threading.RLock()  # as in `Panel`: two threads of the kernel
        self._card, self.shown, self._said_over, self._told = None, NONE, False, []
        self.topic = choice("Topic", session.topics, session.topics[0][1])
        self.level = choice("Level", session.levels, session.levels[0][1])
        self.main = self._button(_MAIN[NONE], self._go_on, width="230px", button_style="primary")
        self.skip = self._button("Skip this card", self._skip)
        self.pause = self._button("Pause the timer", self._pause, width="170px")
        self.grades = {grade: self._button(grade, partial(self._grade, grade)) for grade in GRADES}
        # Ticks in the browser, also while the kernel is busy. Its own buttons have no names, so it is out of sight.
        self.clock = widgets.Play(interval=1000, max=_DAY, show_repeat=False, layout=widgets.Layout(display="none"))
        self.bar = widgets.IntProgress(0, 0, 60, layout=widgets.Layout(width="200px"))
        self._link = widgets.jslink((self.clock, "value"), (self.bar, "value"))
        self.time, self.sentence = Sentence(), Sentence()
        self.question, self.weak, self.follow_ups = widgets.HTML(), widgets.HTML(), widgets.HTML()
        self.good, self.senior = widgets.VBox(), widgets.VBox()
        self.points: dict[str, list[widgets.Checkbox]] = {"good": [], "senior": []}
        self._timer = _row(self.pause, self.bar, self.time, self.clock)
        row = _row(*self.grades.values())
        row.add_class("card-grades")
        self._graded = widgets.VBox([widgets.HTML("<strong>Grade your answer</strong>"), row])
        for part in (self.question, self.weak, self.good, self.senior, self.follow_ups, self._graded):
            part.add_class("card-part")
        for control in (self.topic, self.level):
            control.observe(lambda _: self._safely(self._chosen), "value")
        self.clock.observe(lambda _: self._safely(self._tick), "value")
        super().__init__(
            [
                widgets.HTML(_CSS, layout=widgets.Layout(display="none")),  # a style counts out of sight, too
                _row(self.topic, self.level),
                _row(self.main, self.skip),
                self.sentence,
                self.question,
                self._timer,
                self.weak,
                self.good,
                self.senior,
                self.follow_ups,
                self._graded,
            ],
            layout=widgets.Layout(max_width="820px", grid_gap="4px"),
        )
        self.add_class("card-panel")
        self._show(NONE)
        self._safely(self._chosen)

    # --- What the learner does

    def _go_on(self) -> None:
        if self.shown in (NONE, GRADED):
            self._draw()
        elif self.shown == ALL:
            self.grades[self._suggested()].focus()
            self._say("Choose a grade.")
        else:
            self._show(self.shown + 1)

    def _draw(self, said: str = "") -> None:
        self._card = self._session.draw(self.topic.value, self.level.value)
        if self._card is None:
            self._show(NONE)
            self._say("There is no card of this topic and level: choose another one.", *self._session.notes())
            return
        self.clock.value, self._said_over = 0, False
        self.bar.max = 60 * self._card.minutes
        self._show(QUESTION)
        self._run(True)
        self._say(said, "Answer aloud, then reveal. The timer runs.", *self._session.notes())

    def _skip(self) -> None:
        if self._card is None or self.shown in (NONE, GRADED):
            self._say("There is no card to skip: draw one first.")
            return
        skipped = self._card
        self._session.skip(skipped)
        self._draw("Skipped.")
        if self._card == skipped:
            self._say("This is the only card of this topic and level, so it is asked again. The timer runs.")

    def _grade(self, grade: str) -> None:
        if self._card is None or self.shown == NONE:
            self._say("There is no card to grade: draw one first.")
            return
        if self.shown == GRADED:
            self._say("This card has its grade. Draw the next one.")
            return
        self._run(on=False)
        boxes = [box for part in self.points.values() for box in part]
        of = len(self._card.good) + len(self._card.senior)
        said = self._session.grade(self._card, grade, sum(box.value for box in boxes), of, self.clock.value)
        self._show(GRADED)
        self._say(said, self._session.waiting(self.topic.value, self.level.value), *self._session.notes())
        self.main.focus()

    def _pause(self) -> None:
        if self.shown != QUESTION:
            self._say("The timer runs from the question until the answer is revealed.")
            return
        self._run(not self.clock.playing)

    def _chosen(self) -> None:
        later = "" if self.shown in (NONE, GRADED) else "The card stays; the choice is for the next one."
        self._say(later, self._session.waiting(self.topic.value, self.level.value), *self._session.notes())

    def _ticked(self, _) -> None:
        self._safely(self._suggest)

    # --- What is shown

    def _show(self, shown: int) -> None:
        """The card up to the part `shown`."""
        card, self.shown = self._card, shown
        self.main.description = _MAIN[shown]
        if shown in (NONE, QUESTION):
            asked = _spoken(f"{_facts(card)}{_strong(card.question)}") if card else ""
            self.question.value, self.weak.value, self.follow_ups.value = asked, "", ""
            self._points("good", ())
            self._points("senior", ())
        elif shown == WEAK:
            self._run(False)
            self.weak.value = _spoken(_list("A weak answer says, or leaves out", card.weak))
            self._say("Read what is missing in a weak answer. Then go on to a good one.")
        elif shown == GOOD:
            self._points("good", card.good)
            self._say("Tick what you said.")
        elif shown == SENIOR:
            self._points("senior", card.senior)
            self._say("Tick what you said.")
        elif shown == ALL:
            asked = _list("Follow-ups", card.follow_ups)
            read = f'<div class="card-read">Read: {marked(card.notebook)}, section “{marked(card.heading)}”.</div>'
            self.follow_ups.value = _spoken(f"{asked}{read}")
            self._say("Answer the follow-ups, too, then grade.")
        for part in (self._timer, self._graded):  # the focus is in neither when there is no card
            _appear(part, card is not None)
        for part in (self.question, self.weak, self.follow_ups):
            _appear(part, bool(part.value))
        for part in (self.good, self.senior):
            _appear(part, bool(part.children))
        self._suggest()

    def _points(self, part: str, points: Sequence[Point]) -> None:
        title = {"good": "A good answer. I said this:", "senior": "A senior answer, besides. I said this:"}[part]
        self.points[part] = [_box(point, self._ticked) for point in points]
        getattr(self, part).children = [widgets.HTML(f"<strong>{title}</strong>"), *self.points[part]] if points else []

    def _suggest(self) -> None:
        """The suggested grade, in the text of its button, and why, in the sentence."""
        ticking = self.shown in (GOOD, SENIOR, ALL)
        suggested = self._suggested() if ticking else None
        for grade, button in self.grades.items():
            button.description = f"{grade} (suggested)" if grade == suggested else grade
            button.style.font_weight = "bold" if grade == suggested else "normal"
        self.sentence.text = " ".join([*self._told, self._why()] if ticking else self._told)

    def _suggested(self) -> str:
        return self._session.suggested(*self._counts())

    def _counts(self) -> tuple[tuple[int, int], tuple[int, int]]:
        parts = (("good", self._card.good), ("senior", self._card.senior))
        good, senior = ((sum(box.value for box in self.points[name]), len(points)) for name, points in parts)
        return good, senior

    def _why(self) -> str:
        (said, good), (more, senior) = self._counts()
        told = f"{said} of {good} good points" + (
            f" and {more} of {senior} senior ones" if self.points["senior"] else ""
        )
        return f"You said {told}: {self._suggested()} is suggested."

    # --- The timer

    def _run(self, on: bool) -> None:
        self.clock.playing = on
        paused = "Go on with the timer" if self.shown == QUESTION else "The timer has stopped"
        self.pause.description = "Pause the timer" if on else paused
        self._tell_time()

    def _tick(self) -> None:
        if self._card is not None and not self._said_over and self.clock.value >= self.bar.max:
            self._said_over = True
            self._tell_time()

    def _tell_time(self) -> None:
        seconds, limit = self.clock.value, self.bar.max
        minutes = "1 minute" if limit == 60 else f"{limit // 60} minutes"
        if self._said_over:
            over = f"Over time: the {minutes} are up." if limit != 60 else "Over time: the minute is up."
            self.time.text = over if self.clock.playing else f"{over} You took {_clock(seconds)}."
        elif self.clock.playing:
            self.time.text = f"{minutes} for the answer"
        else:
            self.time.text = f"Stopped at {_clock(seconds)} of {_clock(limit)}."

    # --- How it is said

    def _say(self, *sentences: str) -> None:
        self._told = [sentence for sentence in sentences if sentence]
        self._suggest()

    def _button(self, label: str, pressed: Callable[[], None], width: str = "auto", **looks) -> widgets.Button:
        button = widgets.Button(description=label, layout=widgets.Layout(width=width), **looks)
        button.on_click(lambda _: self._safely(pressed))
        return button

    def _safely(self, what: Callable[[], None]) -> None:
        """What an observer raises would vanish into the server's log. Moves are short: an interrupt waits."""
        with self._working, uninterrupted():
            try:
                what()
            except Exception as error:
                self.sentence.text = failure(error)

    @property
    def message(self) -> str:
        """The sentence that says where the panel stands."""
        return self.sentence.text

    def __repr__(self) -> str:
        return "Panel with topic, level, a card, its rubric, a timer, grades: run this cell to use it."


def marked(text: str) -> str:
    """Text as HTML, with all of HTML's own characters escaped; what stands between backticks is code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(" ".join(text.split())))


def _spoken(content: str) -> str:
    """A part of the page that a screen reader speaks when it comes."""
    return f'<div role="status" aria-live="polite">{content}</div>'


def _facts(card: Card) -> str:
    told = html.escape(f"{card.level}, {card.minutes} minute" + ("s" if card.minutes != 1 else ""))
    return f'<span class="card-facts">{told}</span>'


def _list(title: str, items: Iterable[str]) -> str:
    return f"<strong>{title}</strong><ul>{''.join(f'<li>{marked(item)}</li>' for item in items)}</ul>"


def _strong(question: str) -> str:
    return f'<strong class="card-question">{marked(question)}</strong>'


def _clock(seconds: int) -> str:
    return f"{seconds // 60}:{seconds % 60:02}"


def _row(*parts: widgets.Widget) -> widgets.Box:
    return widgets.Box(parts, layout=widgets.Layout(flex_flow="row wrap", grid_gap="2px 12px", align_items="center"))


def _appear(part: widgets.Widget, on: bool) -> None:
    part.layout.display = None if on else "none"


def _box(point: Point, ticked: Callable) -> widgets.Checkbox:
    box = widgets.Checkbox(
        False,
        description=marked(point.says) + (" <em>(a judgement)</em>" if point.advice else ""),
        description_allow_html=True,
        indent=False,
        layout=widgets.Layout(width="auto"),
    )
    box.observe(ticked, "value")
    return box
