"""The card panel without a browser: each state says where it is, and no text gets out of its place."""

from datetime import UTC, datetime, timedelta

import pytest
from sample_cards import sample_deck

from recompute_lab.lessons import progress
from recompute_lab.lessons.card_panel import Practice, panel
from recompute_lab.lessons.progress import NOT_KEPT, Graded, Journal
from recompute_lab.views.card_panel import ALL, GOOD, GRADED, NONE, QUESTION, SENIOR, WEAK, CardPanel, marked


class Clock:
    def __init__(self):
        self.now = datetime(2026, 3, 1, 12, tzinfo=UTC)

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def journal(tmp_path):
    return Journal(tmp_path / "progress.jsonl")


@pytest.fixture
def shown(tmp_path, journal, clock) -> CardPanel:
    return CardPanel(Practice(sample_deck(tmp_path), journal, clock))


def question(shown: CardPanel) -> str:
    return shown._card.id


def reveal(shown: CardPanel, part: int) -> None:
    while shown.shown != part:
        shown.main.click()


def tick(shown: CardPanel, part: str, *numbers: int) -> None:
    for number in numbers:
        shown.points[part][number].value = True


def suggestion(shown: CardPanel) -> list[str]:
    return [button.description for button in shown.grades.values() if "suggested" in button.description]


def test_a_panel_reads_the_same_on_every_machine_and_day(shown):
    said = "Panel with topic, level, a card, its rubric, a timer, grades: run this cell to use it."
    assert repr(shown) == said and shown._repr_mimebundle_()["text/plain"] == said
    reveal(shown, ALL)
    assert repr(shown) == said


def test_one_button_goes_through_a_card(shown):
    labels = []
    for _ in range(6):
        labels.append(shown.main.description)
        shown.main.click()
    assert labels == [
        "Draw a card",
        "Reveal the answer: weak",
        "Reveal the answer: good",
        "Reveal the answer: senior",
        "Follow-ups",
        "Go to the grades",
    ]
    assert shown.shown == ALL and shown.main.disabled is False
    shown.grades["Good"].click()
    assert shown.main.description == "Draw the next card"


def test_what_is_shown_grows_part_by_part(shown):
    assert (shown.shown, shown.question.value) == (NONE, "")
    assert shown.message == "Of 6 cards, 0 due, 6 not seen yet, 0 for later."
    shown.main.click()
    assert shown.shown == QUESTION and "run twice?" in shown.question.value and "1 minute<" in shown.question.value
    assert not shown.weak.value and not shown.good.children and not suggestion(shown)
    shown.main.click()
    assert shown.shown == WEAK and "backward runs twice" in shown.weak.value
    shown.main.click()
    assert shown.shown == GOOD and len(shown.points["good"]) == 2 and not shown.points["senior"]
    assert "<code>torch.utils.checkpoint</code> keeps" in shown.points["good"][1].description
    shown.main.click()
    assert shown.shown == SENIOR and "(a judgement)" in shown.points["senior"][0].description
    shown.main.click()
    assert "What does it cost?" in shown.follow_ups.value
    assert "Read: 00_start_here.ipynb, section “One flip in one minute”." in shown.follow_ups.value
    parts = (shown._timer, shown.weak, shown.good, shown.senior, shown.follow_ups, shown._graded)
    assert all(part.layout.display is None for part in parts)


def test_the_points_suggest_a_grade_in_words(shown):
    reveal(shown, GOOD)
    assert suggestion(shown) == ["Again (suggested)"]
    assert shown.message == "Tick what you said. You said 0 of 2 good points: Again is suggested."
    tick(shown, "good", 0)
    assert suggestion(shown) == ["Hard (suggested)"]
    tick(shown, "good", 1)
    assert suggestion(shown) == ["Good (suggested)"]
    reveal(shown, SENIOR)
    assert [box.value for box in shown.points["good"]] == [True, True], "ticks stay"
    tick(shown, "senior", 0)
    assert suggestion(shown) == ["Easy (suggested)"]
    assert shown.message.endswith("You said 2 of 2 good points and 1 of 1 senior ones: Easy is suggested.")
    shown.points["good"][0].value = False
    assert suggestion(shown) == ["Hard (suggested)"]


def test_a_grade_is_written_down_and_says_when_the_card_comes_back(shown, journal, clock):
    reveal(shown, ALL)
    tick(shown, "good", 0, 1)
    shown.clock.value = 42
    shown.grades["Good"].click()
    assert journal.events() == [Graded("what-runs-twice", "Good", clock.now, 2, 3, 42)]
    assert shown.shown == GRADED and not suggestion(shown)
    assert shown.message.startswith("Graded Good. This card comes back in 10 minutes. Of 6 cards, 0 due, 5 not seen")
    shown.grades["Again"].click()
    assert len(journal.events()) == 1 and shown.message == "This card has its grade. Draw the next one."
    shown.main.click()
    assert question(shown) == "count-of-tensors"


def test_what_was_graded_again_comes_back_first(shown, clock):
    reveal(shown, ALL)
    shown.grades["Again"].click()
    assert "comes back in 1 minute." in shown.message
    shown.main.click()
    shown.grades["Easy"].click()  # known at once: no need to reveal
    shown.main.click()
    assert question(shown) == "early-stop"
    shown.grades["Good"].click()
    clock.now += timedelta(minutes=2)
    shown.main.click()
    assert question(shown) == "what-runs-twice"


def test_a_panel_made_anew_goes_on_where_the_last_one_stopped(shown, journal, clock, tmp_path):
    for _ in range(2):
        shown.main.click()
        shown.grades["Good"].click()
    again = CardPanel(Practice(sample_deck(tmp_path), Journal(journal.path), clock))
    assert again.message.startswith("Of 6 cards, 0 due, 4 not seen yet, 2 for later.")
    again.main.click()
    assert question(again) == "early-stop"


def test_topic_and_level_choose_the_next_card(shown):
    assert shown.topic.options[1:] == (("Two passes (3)", "passes"), ("Random draws (3)", "draws"))
    shown.main.click()
    shown.topic.value = "draws"
    assert question(shown) == "what-runs-twice"
    assert shown.message.startswith("The card stays; the choice is for the next one. Of 3 cards")
    shown.skip.click()
    assert question(shown) == "lost-mask"
    shown.level.value = "staff"
    shown.skip.click()
    assert question(shown) == "seed-once"
    shown.skip.click()
    assert question(shown) == "seed-once" and "the only card" in shown.message


def test_skipped_cards_come_last_and_are_not_written_down(shown, journal):
    shown.main.click()
    seen = []
    for _ in range(6):
        seen.append(question(shown))
        shown.skip.click()
    assert seen == ["what-runs-twice", "count-of-tensors", "early-stop", "lost-mask", "streams", "seed-once"]
    assert question(shown) == "what-runs-twice" and journal.events() == []


def test_a_choice_without_cards_says_so(tmp_path, journal, clock):
    deck = sample_deck(tmp_path)
    few = CardPanel(Practice(type(deck)(deck.topics, deck.cards[:1]), journal, clock))
    few.topic.value = "draws"
    assert few.message == "No card has this topic and level."
    few.main.click()
    assert few.shown == NONE and few.message == "There is no card of this topic and level: choose another one."
    for button in (few.skip, few.grades["Good"]):
        button.click()
        assert "draw one first" in few.message


def test_the_timer_runs_pauses_and_says_when_time_is_up(shown):
    shown.pause.click()
    assert "from the question until" in shown.message
    shown.main.click()
    assert shown.clock.playing and shown.bar.max == 60 and shown.time.text == "1 minute for the answer"
    shown.clock.value = 35
    shown.pause.click()
    assert not shown.clock.playing and shown.pause.description == "Go on with the timer"
    assert shown.time.text == "Stopped at 0:35 of 1:00."
    shown.pause.click()
    assert shown.clock.playing and shown.pause.description == "Pause the timer"
    shown.clock.value = 60
    assert shown.time.text == "Over time: the minute is up."
    shown.clock.value = 75
    shown.main.click()
    assert not shown.clock.playing and shown.time.text == "Over time: the minute is up. You took 1:15."
    shown.skip.click()
    assert shown.clock.value == 0 and shown.bar.max == 120 and shown.time.text == "2 minutes for the answer"


def test_no_text_becomes_markup(shown):
    shown.topic.value = "draws"
    reveal(shown, ALL)
    assert question(shown) == "lost-mask"
    everything = [shown.question.value, shown.weak.value, shown.follow_ups.value, shown.points["good"][0].description]
    assert "<script" not in "".join(everything) and "<b>" not in "".join(everything)
    assert "with p &lt; 1 &amp; no replay" in everything[0] and "<code>Dropout(p=0.5)</code>" in everything[0]
    assert "&lt;script&gt;" in everything[3]
    assert marked("`<i>` \n & '") == "<code>&lt;i&gt;</code> &amp; &#x27;"


def test_a_broken_journal_is_met_with_a_sentence(tmp_path, journal, clock):
    journal.path.write_bytes(b'{"v": 1, "kind": "ca')
    shown = CardPanel(Practice(sample_deck(tmp_path), journal, clock))
    told = "1 line of " + str(journal.path) + " was skipped as unreadable; nothing was deleted."
    assert told in shown.message
    shown.main.click()
    shown.grades["Good"].click()
    assert told in shown.message and len(journal.events()) == 1


def test_a_journal_that_cannot_be_written_leaves_the_panel_going(tmp_path, clock):
    (tmp_path / "my").write_text("")
    shown = CardPanel(Practice(sample_deck(tmp_path), Journal(tmp_path / "my" / "p.jsonl"), clock))
    shown.main.click()
    shown.grades["Good"].click()
    assert "comes back in 10 minutes" in shown.message and "kept until this session ends" in shown.message
    shown.main.click()
    assert question(shown) == "count-of-tensors"


def test_what_goes_wrong_is_a_sentence_and_the_panel_lives_on(shown):
    practice = shown._session
    draw, practice.draw = practice.draw, lambda *_: 1 / 0
    shown.main.click()
    assert shown.message == "This went wrong (ZeroDivisionError: division by zero). The controls still work."
    practice.draw = draw
    shown.main.click()
    assert shown.shown == QUESTION


def test_without_a_journal_the_panel_says_that_nothing_is_kept(tmp_path, monkeypatch):
    monkeypatch.delenv(progress.VARIABLE, raising=False)
    monkeypatch.delenv("JPY_SESSION_NAME", raising=False)
    shown = panel(sample_deck(tmp_path))
    assert NOT_KEPT in shown.message
    shown.main.click()
    shown.grades["Again"].click()
    assert "comes back in 1 minute" in shown.message


def test_the_courses_own_cards_can_all_be_shown(journal):
    shown = panel(journal=journal)
    seen = set()
    for _ in shown._session.deck.cards:
        reveal(shown, ALL)
        seen.add(question(shown))
        shown.grades["Easy"].click()
        assert shown.shown == GRADED, shown.message
    assert len(seen) == len(shown._session.deck.cards)
