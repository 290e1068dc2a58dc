"""A learner opens a lesson in JupyterLab and runs all of it: everything shows, nothing breaks."""

import os
import re
from pathlib import Path

import nbformat
import pytest
from build import ROOT as NOTEBOOKS
from playwright.sync_api import Page, expect

pytestmark = pytest.mark.browser

LESSONS = sorted(NOTEBOOKS.glob("*.ipynb"))
RUN_LIMIT = 300_000  # ms; a lesson takes up to a minute, on a busy machine several
PROMPT = ".jp-Notebook .jp-CodeCell .jp-InputPrompt"
OUTPUT = ".jp-Notebook .jp-OutputArea-output"
BAD = "application/vnd.jupyter.error", "application/vnd.jupyter.stderr"


def wait_until_idle(page: Page) -> None:
    """The kernel is up and has nothing to do. Before that JupyterLab drops Run without a word."""
    expect(page.locator("#jp-main-statusbar")).to_contain_text("| Idle", timeout=60_000)


def run_all(page: Page) -> None:
    """Restart Kernel and Run All Cells, through the menu as a learner would."""
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.get_by_role("menuitem", name=re.compile("^Restart Kernel and Run All Cells")).click()
    page.locator(".jp-Dialog button.jp-mod-accept").click()


def screenshot(page: Page, name: str) -> None:
    """The whole lesson as a picture in the folder that $SCREENSHOTS names, if it does."""
    if folder := os.environ.get("SCREENSHOTS"):
        Path(folder).mkdir(parents=True, exist_ok=True)
        # The lesson scrolls within the page, so the page is made tall enough for all of it.
        tall = page.locator(".jp-NotebookPanel-notebook").evaluate(
            "e => Math.max(...[e, ...e.querySelectorAll('*')].map(x => x.scrollHeight))"
        )
        page.set_viewport_size({"width": 1280, "height": min(tall + 150, 16_000)})
        page.locator(".jp-WindowedPanel-outer").evaluate("e => e.scrollTo(0, 0)")
        page.screenshot(path=Path(folder, f"{name}.png"))


def test_there_are_lessons():
    assert LESSONS, "no notebook in notebooks/: run make notebooks"


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_lesson_runs(page: Page, lab, path: Path):
    stored = nbformat.read(path, as_version=4)
    code = [cell for cell in stored.cells if cell.cell_type == "code" and cell.source.strip()]
    pictures = sum("image/png" in o.get("data", {}) for cell in code for o in cell.outputs)

    page.goto(lab.address(path.name))
    wait_until_idle(page)
    expect(page.locator(PROMPT)).to_have_text(["[ ]:"] * len(code))
    run_all(page)
    try:
        page.wait_for_function(
            """([prompt, bad]) => {
                const done = [...document.querySelectorAll(prompt)]
                    .every(e => /^\\[\\d+\\]:$/.test(e.innerText.trim()));
                return done || document.querySelector(bad) !== null;
            }""",
            arg=[PROMPT, f'{OUTPUT}[data-mime-type="{BAD[0]}"]'],
            timeout=RUN_LIMIT,
        )
        wait_until_idle(page)
    finally:
        screenshot(page, path.stem)

    for mime in BAD:
        assert page.locator(f'{OUTPUT}[data-mime-type="{mime}"]').all_inner_texts() == []
    expect(page.locator(PROMPT)).to_have_text([f"[{n}]:" for n in range(1, len(code) + 1)])
    expect(page.locator(OUTPUT).filter(has_text="Error displaying widget")).to_have_count(0)
    expect(page.locator(OUTPUT).filter(has_text="Loading widget")).to_have_count(0)
    shown = page.locator(".jp-Notebook .jp-OutputArea-output img")
    drawn = shown.evaluate_all("all => all.filter(e => e.complete && e.naturalWidth > 0).length")
    assert drawn >= pictures, f"{drawn} pictures are shown, {pictures} are stored"
