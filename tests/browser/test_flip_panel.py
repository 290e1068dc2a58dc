"""Lesson 03's panel in JupyterLab: every control by its name, by keyboard and by mouse."""

import pytest
from playwright.sync_api import Page, expect
from test_lessons import screenshot
from test_panels import Shown

pytestmark = pytest.mark.browser

PANEL = "from recompute_lab.lessons.flip_panel import panel\n\npanel = panel()\npanel"
CONTROLS = ["Branch", "The guard says", "Implementation", "Early stop", "Determinism check"]


@pytest.fixture
def flips(page: Page, lab) -> Shown:
    return Shown(page, lab, "flips", PANEL)


def test_the_controls_have_names_and_the_picture_has_one(flips: Shown):
    names = flips.names()
    assert names["combobox"] == CONTROLS
    assert names["img"] == ["The slots of both passes, and the gradient error of each parameter"]
    assert flips.picture.evaluate("e => e.naturalWidth > 1.4 * e.clientWidth")
    flips.says("False, then true: in slot 12 the forward had saved tanh's tensor (32×16), the recomputation put mul's")


def choose(page: Page, key: str) -> None:
    """Open the list that has the focus, move in it, and take what is there.

    Without opening it, JupyterLab takes the arrow keys for itself (jupyter-widgets/ipywidgets, issue 3912).
    """
    for pressed in ("Alt+ArrowDown", key, "Enter"):
        page.keyboard.press(pressed)


def test_the_flip_panel_by_keyboard(flips: Shown):
    page, area = flips.page, flips.area
    moves = {
        "Branch": (
            "ArrowUp",
            "the recomputation put mul's (32×1) there and stopped: it had its 12. The check compares",
        ),
        "Determinism check": ("ArrowDown", "The check is off, so nothing raises."),
        "Early stop": ("ArrowDown", "early stop is off, so torch raises."),
        "The guard says": ("ArrowUp", "the forward saved 13 tensors, the recomputation 12: fewer, so torch raises."),
        "Implementation": ("ArrowDown", "Early stop and determinism check mean nothing here."),
    }
    for label, (key, sentence) in moves.items():
        area.get_by_label(label).focus()
        flips.changes(lambda key=key: choose(page, key), sentence)


def test_the_tab_key_goes_from_control_to_control(flips: Shown):
    flips.area.get_by_label(CONTROLS[0]).focus()
    for label in CONTROLS[1:]:
        flips.page.keyboard.press("Tab")
        expect(flips.area.get_by_label(label)).to_be_focused()


def test_the_flip_panel_by_mouse(flips: Shown):
    area = flips.area
    screenshot(flips.page, "flips")
    early_stop, check = (area.get_by_label(label) for label in ("Early stop", "Determinism check"))
    flips.changes(lambda: area.get_by_label("Branch").select_option("route"), "off by up to 1.5 times")
    flips.changes(lambda: area.get_by_label("The guard says").select_option("true, then false"), "by up to 2.5 times")
    flips.changes(lambda: area.get_by_label("Implementation").select_option("reentrant"), "mean nothing here")
    expect(early_stop).to_be_disabled()
    expect(check).to_be_disabled()
    flips.changes(lambda: area.get_by_label("Branch").select_option("gate"), "by up to 1.0 times their size; 2")
    flips.changes(lambda: area.get_by_label("Implementation").select_option("non-reentrant"), "17 tensors")
    expect(early_stop).to_be_enabled()
    expect(check).to_be_enabled()
