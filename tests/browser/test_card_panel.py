"""Lesson 09's panel in JupyterLab, by keyboard alone: draw, answer, reveal, tick, grade, and it comes back."""

import json
import os
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from conftest import write_notebook
from playwright.sync_api import Locator, Page, expect
from sample_cards import TEXT
from test_lessons import run_all, wait_until_idle

from recompute_lab.lessons.progress import Journal

pytestmark = pytest.mark.browser

START = 60_000  # ms, for a kernel to start
CELL = """import os
from recompute_lab.lessons.card_panel import panel
from recompute_lab.lessons.cards import load
from recompute_lab.lessons.progress import Journal

panel = panel(load("sample_cards.toml"), Journal("{name}.jsonl"))
panel"""
GRADES = ["Again", "Hard", "Good", "Easy"]


class Cards:
    """The panel on a page, with a journal of its own."""

    def __init__(self, page: Page, lab, name: str):
        self.page, self.lab, self.name, self.path = page, lab, name, lab.folder / f"{name}.jsonl"
        (lab.folder / "sample_cards.toml").write_text(TEXT, encoding="utf-8")
        write_notebook(lab, f"{name}.ipynb", CELL.format(name=name))
        self.open()

    def open(self) -> None:
        self.page.goto(self.lab.address(f"{self.name}.ipynb"))
        wait_until_idle(self.page)
        run_all(self.page)
        self.area = self.page.locator(".card-panel")
        expect(self.button("Draw a card")).to_be_visible(timeout=START)
        wait_until_idle(self.page)

    def button(self, name: str) -> Locator:
        return self.area.get_by_role("button", name=name, exact=True)

    def says(self, text: str) -> None:
        expect(self.area.get_by_role("status").filter(has_text=text)).to_have_count(1, timeout=20_000)

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)

    def focused(self, name: str) -> None:
        expect(self.button(name)).to_be_focused()

    def reveal_all(self) -> None:
        """From the question on, by Enter; the focus stays on the one button."""
        for label in ("weak", "good", "senior"):
            self.focused(f"Reveal the answer: {label}")
            self.press("Enter")
        self.focused("Follow-ups")
        self.press("Space")
        self.focused("Go to the grades")

    def events(self) -> list[dict]:
        return [json.loads(line) for line in self.path.read_text().splitlines()]

    def an_hour_passes(self) -> None:
        """All that is in the journal becomes an hour older."""
        events = self.events()
        for event in events:
            event["at"] = (datetime.fromisoformat(event["at"]) - timedelta(hours=1)).isoformat()
        self.path.write_text("".join(json.dumps(event) + "\n" for event in events))

    def picture(self, name: str) -> None:
        if folder := os.environ.get("SCREENSHOTS"):
            Path(folder).mkdir(parents=True, exist_ok=True)
            for width in (1280, 900):
                self.page.set_viewport_size({"width": width, "height": 1100})
                self.page.wait_for_timeout(400)
                self.area.screenshot(path=Path(folder, f"cards_{name}_{width}.png"))
            self.page.set_viewport_size({"width": 1280, "height": 900})


@pytest.fixture
def cards(page: Page, lab, request) -> Cards:
    return Cards(page, lab, request.node.name.removeprefix("test_")[:40])


def test_a_card_is_answered_graded_and_comes_back_by_keyboard_alone(cards: Cards):
    page, area = cards.page, cards.area
    cards.says("Of 6 cards, 0 due, 6 not seen yet")
    cards.picture("1_start")
    area.get_by_label("Topic").focus()
    cards.press("Tab", "Tab")
    cards.focused("Draw a card")
    cards.press("Enter")
    cards.says("What does a checkpointed segment run twice?")
    cards.picture("2_question")
    cards.reveal_all()
    cards.says("You said 0 of 2 good points and 0 of 1 senior ones: Again is suggested.")
    cards.picture("3_all")

    point = area.get_by_role("checkbox", name="Its forward, the second time during backward.")
    cards.press("Tab", "Tab", "Tab")  # over Skip and the timer
    expect(point).to_be_focused()
    cards.press("Space")
    expect(point).to_be_checked()
    expect(point).to_be_focused()
    expect(cards.button("Hard (suggested)")).to_be_visible()
    cards.press("Tab", "Space")
    expect(cards.button("Good (suggested)")).to_be_visible()
    cards.says("You said 2 of 2 good points and 0 of 1 senior ones: Good is suggested.")
    cards.picture("4_ticked")
    cards.press(*["Shift+Tab"] * 4)
    cards.focused("Go to the grades")
    cards.press("Enter")
    cards.focused("Good (suggested)")
    cards.press("Shift+Tab", "Shift+Tab")
    cards.focused("Again")
    cards.press("Enter")
    cards.says("Graded Again. This card comes back in 1 minute. Of 6 cards, 0 due, 5 not seen yet, 1 for later.")
    cards.focused("Draw the next card")
    cards.picture("5_graded")
    (event,) = cards.events()
    assert event.items() >= {"v": 1, "kind": "card", "card": "what-runs-twice", "grade": "Again"}.items()
    assert (event["said"], event["of"]) == (2, 3)

    cards.press("Enter")  # the next one is one key away
    cards.says("162 tensors in forward, 161 in recomputation: where do you look first?")
    cards.reveal_all()
    cards.picture("6_long")
    cards.press("Enter")
    cards.focused("Again (suggested)")
    cards.press("Tab", "Tab", "Tab", "Enter")
    cards.says("Graded Easy. This card comes back in ")
    cards.an_hour_passes()
    cards.focused("Draw the next card")
    cards.press("Enter")
    cards.says("What does a checkpointed segment run twice?")
    expect(page.locator(".card-panel:focus-within")).to_have_count(1)


def test_a_notebook_opened_anew_goes_on_where_it_stopped(cards: Cards):
    for _ in range(2):
        cards.area.get_by_role("button", name="Draw").click()
        expect(cards.button("Reveal the answer: weak")).to_be_visible()
        cards.button("Good").click()
        cards.says("Graded Good.")
    cards.open()
    cards.says("Of 6 cards, 0 due, 4 not seen yet, 2 for later.")
    cards.button("Draw a card").click()
    cards.says("What does early stop hide?")
    assert [event["card"] for event in cards.events()] == ["what-runs-twice", "count-of-tensors"]


def test_a_broken_journal_is_met_with_a_sentence(cards: Cards):
    cards.button("Draw a card").click()
    cards.button("Good").click()
    cards.says("Graded Good.")
    whole = cards.path.read_bytes()
    cards.path.write_bytes(whole[:-20])
    cards.open()
    cards.says("1 line of ")
    cards.says("was skipped as unreadable; nothing was deleted.")
    cards.picture("7_broken")
    cards.button("Draw a card").click()
    cards.button("Hard").click()
    cards.says("Graded Hard.")
    assert [event.grade for event in Journal(cards.path).events()] == ["Hard"]
    assert cards.path.read_bytes().startswith(whole[:-20])


def test_the_timer_ticks_pauses_and_says_when_time_is_up(cards: Cards):
    cards.button("Draw a card").click()
    cards.says("1 minute for the answer")
    bar = cards.area.locator(".widget-hprogress .progress-bar")
    cards.page.wait_for_timeout(2500)
    cards.button("Pause the timer").focus()
    cards.press("Enter")
    cards.focused("Go on with the timer")
    cards.says("of 1:00.")
    width = bar.evaluate("e => e.style.width")
    assert width not in ("", "0%")
    cards.page.wait_for_timeout(2500)
    assert bar.evaluate("e => e.style.width") == width
    cards.press("Space")
    cards.focused("Pause the timer")
    cards.page.wait_for_timeout(2500)
    assert bar.evaluate("e => e.style.width") != width


def test_the_controls_have_names(cards: Cards):
    area = cards.area
    for label in ("Topic", "Level"):
        expect(area.get_by_role("combobox", name=label, exact=True)).to_be_visible()
    cards.button("Draw a card").click()
    cards.says("Answer aloud")
    for label in ("weak", "good", "senior"):
        cards.button(f"Reveal the answer: {label}").click()
    cards.button("Follow-ups").click()
    cards.says("then grade.")
    snapshot = area.aria_snapshot()
    assert '- button ""' not in snapshot and "- button\n" not in snapshot and "- checkbox\n" not in snapshot
    for grade in ("Again (suggested)", *GRADES[1:]):
        expect(cards.button(grade)).to_be_visible()
    area.get_by_label("Topic").select_option(label="Random draws (3)")
    cards.says("The card stays; the choice is for the next one.")
    cards.button("Skip this card").click()
    cards.says("What if the mask of Dropout(p=0.5) is drawn anew, with p < 1 & no replay?")
    cards.picture("8_escaped")


def test_a_kernel_knows_its_notebook_and_a_right_answer_is_written_down(page: Page, lab):
    (lab.folder / "solutions").mkdir(exist_ok=True)
    answer = """import os
os.environ["FORWARD_TWICE_PROGRESS"] = os.path.join(os.path.dirname({root!r}), "checks.jsonl")
print(os.path.basename(os.path.dirname(os.environ["JPY_SESSION_NAME"])), end=": ")
print(os.path.basename(os.environ["JPY_SESSION_NAME"]))
from recompute_lab.lessons.exercise import Exercises

def two(answer):
    return "it is"

Exercises().add()(two)(2)""".format(root=str(lab.folder / "x"))
    path = lab.folder / "checks.jsonl"
    for name, said, events in (
        ("solutions/answered.ipynb", "solutions: answered.ipynb", 0),
        ("answered.ipynb", "notebooks: answered.ipynb", 1),
    ):
        write_notebook(lab, name, answer)
        page.goto(lab.address(name))
        wait_until_idle(page)
        run_all(page)
        output = page.locator(".jp-OutputArea-output").first
        expect(output).to_contain_text("right: it is", timeout=START)
        expect(output).to_contain_text(said)
        assert len(Journal(path).events()) == events
