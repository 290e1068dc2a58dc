"""The interactive panels in JupyterLab: by keyboard, by mouse, by the names a screen reader reads, and in a hurry."""

import re

import pytest
from conftest import write_notebook
from playwright.sync_api import Locator, Page, expect
from test_lessons import run_all, screenshot, wait_until_idle

pytestmark = pytest.mark.browser

START = 60_000  # ms, for a kernel to start and import torch
# In the page: how many pictures the panel's image has been given, from now on.
COUNT_PICTURES = """img => {
    img.pictures = 0;
    new MutationObserver(seen => { img.pictures += seen.length; }).observe(img, {attributeFilter: ["src"]});
}"""
# A small PNG of the picture as shown, to tell two apart.
PIXELS = """async img => {
    await img.decode();
    const canvas = Object.assign(document.createElement("canvas"), {width: 200, height: 80});
    canvas.getContext("2d").drawImage(img, 0, 0, 200, 80);
    return canvas.toDataURL();
}"""


class Shown:
    """A panel on a page."""

    def __init__(self, page: Page, lab, name: str, *cells: str):
        self.page = page
        write_notebook(lab, f"{name}.ipynb", *cells)
        page.goto(lab.address(f"{name}.ipynb"))
        wait_until_idle(page)
        run_all(page)
        self.area = page.locator(".jp-OutputArea-output").filter(has=page.get_by_role("status")).first
        self.picture = self.area.get_by_role("img").first
        self.sentence = self.area.get_by_role("status").first
        expect(self.picture).to_be_visible(timeout=START)
        wait_until_idle(page)

    def pixels(self) -> str:
        return self.picture.evaluate(PIXELS)

    def names(self) -> dict[str, list[str]]:
        """The accessible names of what can be operated, by role."""
        found = re.findall(r"- '?(spinbutton|combobox|button|img)(?: \"(.*?)\")?", self.area.aria_snapshot())
        return {role: [name for r, name in found if r == role] for role, _ in found}

    def says(self, text: str | re.Pattern) -> None:
        expect(self.sentence).to_contain_text(text, timeout=20_000)

    def changes(self, move, sentence: str | re.Pattern) -> None:
        """`move()` leads to another picture and to the sentence."""
        before = self.pixels()
        move()
        self.says(sentence)
        assert self.pixels() != before


THRESHOLD = "from recompute_lab.lessons.threshold import panel\n\npanel = panel()\npanel"
CAP = "Cap (ulps above the limit)"


@pytest.fixture
def threshold(page: Page, lab) -> Shown:
    return Shown(page, lab, "threshold", THRESHOLD, "panel.cap.value = 3\nprint(panel.message)")


def handle(shown: Shown) -> Locator:
    return shown.area.get_by_role("slider")


def test_the_threshold_panel_by_keyboard_and_mouse(threshold: Shown):
    page, area = threshold.page, threshold.area
    threshold.says("At cap 3,")  # the second cell has moved it
    (picture,) = threshold.names().pop("img")
    assert "how often one position fires" in picture
    assert threshold.names() == {
        "spinbutton": [CAP],
        "combobox": ["Noise (ulps)", "Positions", "Source of the noise", "The cap's scale"],
        "button": ["Run 20 checkpointed steps"],
        "img": [picture],
    }
    assert threshold.picture.evaluate("e => e.naturalWidth > 1.4 * e.clientWidth")

    box = area.get_by_label(CAP)
    box.focus()
    threshold.changes(lambda: page.keyboard.press("ArrowUp"), "At cap 4,")
    handle(threshold).focus()
    threshold.changes(lambda: page.keyboard.press("ArrowRight"), "At cap 5,")
    expect(box).to_have_value("5")
    threshold.changes(lambda: page.keyboard.press("Home"), "At cap -80,")
    threshold.changes(lambda: page.keyboard.press("End"), "At cap 80,")
    threshold.changes(lambda: box.fill("16") or box.press("Enter"), "At cap 16,")

    at, track = handle(threshold).bounding_box(), area.locator(".noUi-base").bounding_box()
    page.mouse.move(at["x"] + at["width"] / 2, at["y"] + at["height"] / 2)
    page.mouse.down()
    quarter = track["x"] + track["width"] / 4
    threshold.changes(lambda: page.mouse.move(quarter, at["y"] + at["height"] / 2, steps=5), re.compile("cap -[34]"))
    page.mouse.up()

    threshold.changes(lambda: area.get_by_label("Noise (ulps)").select_option("64"), "of 100 positions fire")
    threshold.changes(lambda: area.get_by_label("Positions").select_option("1"), "of 400 passes")
    real = re.compile("Nothing varied|the machine decides")
    threshold.changes(lambda: area.get_by_label("Source of the noise").select_option("real"), real)
    expect(area.get_by_label("Noise (ulps)")).to_be_disabled()
    threshold.changes(lambda: area.get_by_label("Positions").select_option("10,000"), "Real noise is shown for")
    threshold.changes(lambda: area.get_by_label("Source of the noise").select_option("staged"), "At cap")
    screenshot(page, "threshold")


def test_the_button_takes_steps(threshold: Shown):
    area = threshold.area
    box = area.get_by_label(CAP)
    box.fill("16")
    box.press("Enter")
    threshold.says("At cap 16,")
    button = area.get_by_role("button", name="Run 20 checkpointed steps")
    bar = area.locator(".widget-hprogress")
    bar.evaluate("""bar => {
        const told = bar.querySelector("label");
        bar.seen = new Set();
        new MutationObserver(() => bar.seen.add(told.innerText))
            .observe(told, {childList: true, characterData: true, subtree: true});
    }""")
    button.click()
    expect(area.get_by_role("status").last).to_contain_text("20 steps: ", timeout=60_000)
    expect(button).to_be_enabled()
    seen = bar.evaluate("bar => [...bar.seen]")
    assert "20 of 20" in seen and len(seen) > 5
    expect(area.get_by_role("img", name="How the steps ended.")).to_be_visible()
    box.press("ArrowUp")  # the result was that of another setting
    threshold.says("At cap 17,")
    expect(area.get_by_role("img", name="How the steps ended.")).to_be_hidden()


def test_a_burst_of_keys_leaves_no_pictures_waiting(threshold: Shown):
    page = threshold.page
    handle(threshold).focus()
    threshold.picture.evaluate(COUNT_PICTURES)
    for _ in range(40):
        page.keyboard.press("ArrowRight")
    threshold.says("At cap 43,")
    wait_until_idle(page)
    drawn = threshold.picture.evaluate("img => img.pictures")
    last = threshold.pixels()
    assert 1 <= drawn <= 40
    # Were more pictures on their way, they would come before this one.
    threshold.changes(lambda: page.keyboard.press("ArrowRight"), "At cap 44,")
    assert threshold.picture.evaluate("img => img.pictures") == drawn + 1
    page.keyboard.press("ArrowLeft")
    threshold.says("At cap 43,")
    assert threshold.pixels() == last
