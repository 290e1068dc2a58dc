"""Finding one's way and reading large: links between lessons and glossary, panels on a narrow page or at 200 %."""

import course
import pytest
from playwright.sync_api import Browser, Page, expect
from test_flip_panel import choose
from test_lessons import screenshot, wait_until_idle
from test_panels import CAP, THRESHOLD, Shown

pytestmark = pytest.mark.browser

PANELS = {"threshold": "threshold", "flips": "flip_panel", "masks": "mask_panel", "statistics": "batchnorm_panel"}
ID = "e => e.id || e.dataset.jupyterId"  # JupyterLab's sanitizer renames the one to the other


def opened(page: Page, lab, name: str) -> None:
    page.goto(lab.address(name))
    page.locator(".jp-RenderedMarkdown h1, .jp-MarkdownViewer h1").first.wait_for(timeout=60_000)


@pytest.mark.parametrize("source", course.LESSONS[:1] + course.LESSONS[5:6], ids=lambda source: source.stem)
def test_a_headings_id_is_what_our_rule_makes_of_it(page: Page, lab, source):
    opened(page, lab, f"{source.stem}.ipynb")
    wait_until_idle(page)
    wanted = [course.anchor(heading.text) for heading in course.headings(course.whole(source))]
    shown = page.locator(".jp-Notebook").locator("h1, h2, h3, h4")
    expect(shown).to_have_count(len(wanted))
    assert shown.evaluate_all(f"all => all.map({ID})") == wanted


def test_a_lessons_link_leads_to_its_word_in_the_glossary_and_back(page: Page, lab):
    """(To a notebook JupyterLab 4 opens, and stays at its top: it looks for the heading before there is one.)"""
    page.goto(lab.address("00_start_here.ipynb"))
    wait_until_idle(page)
    page.get_by_role("link", name="the glossary").click()
    glossary = page.locator(".jp-MarkdownViewer")
    expect(glossary.get_by_role("heading", name="Glossary")).to_be_visible()
    entry = glossary.locator("a[href*='04_dropout.ipynb']").first
    entry.scroll_into_view_if_needed()
    entry.click()
    tab = page.get_by_role("tab", name="04_dropout.ipynb")
    expect(tab).to_have_attribute("aria-selected", "true")
    expect(page.locator(".jp-NotebookPanel:visible h1")).to_contain_text("04 · Dropout")


@pytest.fixture
def zoomed(browser: Browser):
    """A window of 1280 x 900 at 200 %: half as wide and high for the page, twice as many pixels for each of its own."""
    context = browser.new_context(viewport={"width": 640, "height": 450}, device_scale_factor=2)
    yield context.new_page()
    context.close()


# What can be operated, or has to be seen, and does not lie within the cell's output.
OUTSIDE = """area => {
    const {left, right} = area.getBoundingClientRect();
    return [...area.querySelectorAll("input, select, button, label, [role=slider], [role=status], .noUi-base")]
        .filter(e => e.offsetParent && e.innerText !== "")
        .filter(e => e.getBoundingClientRect().left < left - 2 || e.getBoundingClientRect().right > right + 3)
        .map(e => `${e.tagName} ${e.className} ${e.innerText}`);
}"""
# The picture's width, and whether all of it can be seen, or scrolled to.
PICTURE = """img => {
    const box = img.getBoundingClientRect();
    let all = true;
    for (let e = img.parentElement; e && !e.classList.contains("jp-Notebook"); e = e.parentElement) {
        const scrolls = ["auto", "scroll"].includes(getComputedStyle(e).overflowX);
        if (scrolls && e.scrollWidth >= box.width) break;
        if (box.right > e.getBoundingClientRect().right + 3 && getComputedStyle(e).overflowX !== "visible") all = false;
    }
    return [box.width, all];
}"""


@pytest.mark.parametrize("name", PANELS)
def test_a_panel_can_be_used_at_200_percent(zoomed: Page, lab, name):
    cell = f"from recompute_lab.lessons.{PANELS[name]} import panel\n\npanel = panel()\npanel"
    shown = Shown(zoomed, lab, name, cell)
    for sidebar in ("open", "closed"):
        if sidebar == "closed":  # it takes half of so narrow a page
            zoomed.keyboard.press("Control+b")
            expect(zoomed.locator("#jp-left-stack")).to_be_hidden()
        assert shown.area.evaluate(OUTSIDE) == []
        width, all_of_it = shown.picture.evaluate(PICTURE)
        assert width >= 470 and all_of_it, f"{width} pixels, file browser {sidebar}"
    screenshot(zoomed, f"{name}_zoomed")
    before = shown.sentence.inner_text()
    shown.area.get_by_role("combobox").nth(0).focus()
    choose(zoomed, "ArrowDown")
    expect(shown.sentence).not_to_have_text(before, timeout=20_000)


def test_the_threshold_panel_by_keyboard_alone(page: Page, lab):
    """From control to control by Tab, lists and button too: the mouse is not needed anywhere."""
    shown = Shown(page, lab, "threshold", THRESHOLD)
    area = shown.area
    area.get_by_label(CAP).focus()
    for aim in (
        area.get_by_role("slider"),
        *map(area.get_by_label, ("Noise (ulps)", "Positions", "Source of the noise", "The cap's scale")),
        area.get_by_role("button", name="Run 20 checkpointed steps"),
    ):
        page.keyboard.press("Tab")
        expect(aim).to_be_focused()
    page.keyboard.press("Enter")
    expect(area.get_by_role("status").last).to_contain_text("20 steps: ", timeout=60_000)
    moves = (
        ("Positions", "Home", "of 400 passes"),
        ("Noise (ulps)", "End", "At cap 16,"),
        ("Noise (ulps)", "Home", "At cap"),
    )
    for label, key, sentence in moves:
        area.get_by_label(label).focus()
        choose(page, key)
        shown.says(sentence)
