"""Lesson 04's panel in JupyterLab: every control by its name, by keyboard and by mouse."""

import pytest
from playwright.sync_api import Page, expect
from test_flip_panel import choose
from test_lessons import screenshot
from test_panels import Shown

pytestmark = pytest.mark.browser

PANEL = "from recompute_lab.lessons.mask_panel import panel\n\npanel = panel()\npanel"
LAYERS = "Layers with dropout"
CONTROLS = [
    "Masks are drawn from",
    "Implementation",
    "preserve_rng_state",
    "The own one replays",
    "p (share dropped)",
]


@pytest.fixture
def masks(page: Page, lab) -> Shown:
    return Shown(page, lab, "masks", PANEL)


def test_the_controls_have_names_and_the_picture_has_one(masks: Shown):
    assert masks.names() == {
        "combobox": CONTROLS,
        "spinbutton": [LAYERS],
        "img": ["The masks of both passes, where they differ, and the gradient error of each parameter"],
    }
    assert masks.picture.evaluate("e => e.naturalWidth > 1.4 * e.clientWidth")
    masks.says("of the places differ, since a torch.Generator was not replayed. No error; the gradients are off by")


def test_the_mask_panel_by_keyboard(masks: Shown):
    page, area = masks.page, masks.area
    moves = (
        ("Masks are drawn from", "ArrowUp", "Both passes drew the same mask: torch's default was replayed."),
        ("preserve_rng_state", "ArrowDown", "since torch's default was not replayed"),
        ("p (share dropped)", "Home", "at p = 0 it keeps everything, replayed or not"),
        ("p (share dropped)", "End", "18% of the places differ"),
        ("preserve_rng_state", "ArrowUp", "torch's default was replayed"),
        ("Implementation", "End", "since torch's default was not replayed"),
    )
    for label, key, sentence in moves:
        area.get_by_label(label).focus()
        masks.changes(lambda key=key: choose(page, key), sentence)
    box = area.get_by_label(LAYERS)
    box.focus()
    masks.changes(lambda: page.keyboard.press("ArrowUp"), "14% of the places differ")
    expect(box).to_have_value("5")
    area.get_by_role("slider").focus()
    masks.changes(lambda: page.keyboard.press("Home"), "18% of the places differ")
    expect(box).to_have_value("1")
    masks.changes(lambda: page.keyboard.press("End"), "17% of the places differ")
    expect(box).to_have_value("8")
    area.get_by_label("The own one replays").focus()
    masks.changes(lambda: choose(page, "ArrowDown"), "torch's default was replayed")


def test_the_tab_key_goes_from_control_to_control(masks: Shown):
    masks.area.get_by_label(CONTROLS[0]).focus()
    for label in ("Implementation", "preserve_rng_state", "p (share dropped)", LAYERS):  # not to what is disabled
        masks.page.keyboard.press("Tab")
        expect(masks.area.get_by_label(label)).to_be_focused()


def test_the_mask_panel_by_mouse(masks: Shown):
    area = masks.area
    screenshot(masks.page, "masks")
    preserve, stage = (area.get_by_label(label) for label in ("preserve_rng_state", "The own one replays"))
    expect(stage).to_be_disabled()
    masks.changes(lambda: area.get_by_label("p (share dropped)").select_option("0.9"), "another mask: 1")
    masks.changes(lambda: area.get_by_label("p (share dropped)").select_option("0.5"), "another mask: 50%")
    area.get_by_label("Implementation").select_option("the course's own")
    expect(preserve).to_be_disabled()
    expect(stage).to_be_enabled()
    masks.says("a torch.Generator was not replayed")
    masks.changes(lambda: stage.select_option("every default, and generators by name"), "torch.Generator was replayed")
    screenshot(masks.page, "masks_own")
    masks.changes(lambda: stage.select_option("every default"), "a torch.Generator was not replayed")
    masks.changes(lambda: area.get_by_label("Masks are drawn from").select_option("Python's random"), "was replayed")
    area.get_by_label("Implementation").select_option("reentrant")
    masks.says("since Python's random was not replayed")
    expect(preserve).to_be_enabled()
    expect(stage).to_be_disabled()
