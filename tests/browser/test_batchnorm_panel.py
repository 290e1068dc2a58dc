"""Lesson 05's panel of running statistics in JupyterLab: every control by its name, by keyboard and by mouse."""

import pytest
from playwright.sync_api import Page, expect
from test_flip_panel import choose
from test_lessons import screenshot
from test_panels import Shown

pytestmark = pytest.mark.browser

PANEL = "from recompute_lab.lessons.batchnorm_panel import panel\n\npanel = panel()\npanel"
CONTROLS = ["Momentum m", "Steps", "Drift of the light", "Implementation", "Repair"]


@pytest.fixture
def statistics(page: Page, lab) -> Shown:
    return Shown(page, lab, "statistics", PANEL)


def test_the_controls_have_names_and_the_picture_has_one(statistics: Shown):
    assert statistics.names() == {
        "combobox": CONTROLS,
        "img": ["Running mean and variance of a channel, and the error in eval mode: plain, checkpointed and repaired"],
    }
    assert statistics.picture.evaluate("e => e.naturalWidth > 1.4 * e.clientWidth")
    statistics.says("Checkpointed, 80 batches are counted in 40 steps and the statistics are off by up to 0.2")


def test_the_batchnorm_panel_by_keyboard(statistics: Shown):
    page, area = statistics.page, statistics.area
    whole = "Repair (boundary moved): the statistics are the plain run's, bit for bit; the counter is right."
    moves = (
        ("Steps", "Home", "40 batches are counted in 20 steps"),
        ("Drift of the light", "End", "the statistics are off by up to 0.83"),
        ("Repair", "End", whole),
        ("Momentum m", "End", "the statistics are right up to rounding; losses and gradients"),
        ("Repair", "Home", "bit for bit. Errors at the end: plain"),
        ("Repair", "ArrowDown", "sqrt(m) needs a number: with momentum None there is no m."),
        ("Momentum m", "Home", "Repair (sqrt(m)): the statistics are off by up to"),
        ("Repair", "ArrowDown", "right up to rounding; the counter still says 40."),
    )
    for label, key, sentence in moves:
        area.get_by_label(label).focus()
        statistics.changes(lambda key=key: choose(page, key), sentence)


def test_the_tab_key_goes_from_control_to_control(statistics: Shown):
    statistics.area.get_by_label(CONTROLS[0]).focus()
    for label in CONTROLS[1:]:
        statistics.page.keyboard.press("Tab")
        expect(statistics.area.get_by_label(label)).to_be_focused()


def test_the_batchnorm_panel_by_mouse(statistics: Shown):
    area = statistics.area
    screenshot(statistics.page, "statistics")
    statistics.changes(
        lambda: area.get_by_label("Repair").select_option("sqrt(m)"), "Repair (sqrt(m)): the statistics are off"
    )
    statistics.changes(lambda: area.get_by_label("Steps").select_option("60"), "120 batches are counted in 60 steps")
    screenshot(statistics.page, "statistics_sqrt")
    area.get_by_label("Implementation").select_option("reentrant")
    statistics.says("120 batches are counted in 60 steps")
    statistics.changes(lambda: area.get_by_label("Repair").select_option("boundary moved"), "the counter is right")
    statistics.changes(
        lambda: area.get_by_label("Repair").select_option("none"), "bit for bit. Errors at the end: plain"
    )
