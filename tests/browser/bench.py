"""How long a slider's move takes to show, in Chromium: our panel, a bare slider, and `interact` on the same figure.

They take turns on one page each, and nothing is asserted. From the key press to the new text or the decoded picture.
"""

import statistics
import sys
import tempfile
from pathlib import Path

import chromium
from conftest import BROWSER_ARGS, Lab, serve, write_notebook
from playwright.sync_api import Page, sync_playwright
from test_lessons import run_all, wait_until_idle

WARM, MOVES = 3, 25
BARE = """
import ipywidgets as widgets
slider, label = widgets.IntSlider(0, min=-80, max=80), widgets.Label("cap 0")
slider.observe(lambda change: setattr(label, "value", f"cap {change['new']}"), "value")
widgets.VBox([slider, label])
"""
INTERACT = """
import ipywidgets as widgets
from IPython.display import Image, display
from recompute_lab.lessons.threshold import measure
from recompute_lab.views.style import png
from recompute_lab.views.threshold import regime
margins = measure(16, 1000, "staged")
widgets.interact(lambda cap: display(Image(png(regime(margins, cap)))), cap=widgets.IntSlider(0, min=-80, max=80));
"""
PANEL = "from recompute_lab.lessons.threshold import panel\npanel = panel()\npanel.cap.value = 0\npanel"
SUBJECTS = {"bare slider and label": BARE, "the threshold panel": PANEL, "interact": INTERACT}
SHOWN = {name: "img" for name in SUBJECTS} | {"bare slider and label": ".widget-label:not([style*=none])"}
# Promises the milliseconds from the next key press to what it shows: another text, or another picture, decoded.
WATCH = """selector => {
    const area = document.querySelector(".jp-OutputArea");
    const shown = () => area.querySelector(selector);
    const content = () => shown()?.src || shown()?.textContent;
    const before = content();
    window.moved = new Promise(resolve => {
        let start;
        addEventListener("keydown", () => { start = performance.now(); }, {capture: true, once: true});
        const watch = new MutationObserver(async () => {
            if (!content() || content() === before) return;
            watch.disconnect();
            await shown().decode?.();
            resolve(performance.now() - start);
        });
        watch.observe(area, {subtree: true, childList: true, characterData: true, attributeFilter: ["src"]});
    });
}"""


def opened(page: Page, lab: Lab, name: str) -> Page:
    """The page with a notebook that shows one of the three, ready to be moved."""
    notebook = f"{name.replace(' ', '_')}.ipynb"
    write_notebook(lab, notebook, SUBJECTS[name])
    page.goto(lab.address(notebook))
    wait_until_idle(page)
    run_all(page)
    for selector in ("[role=slider]", SHOWN[name]):
        page.locator(f".jp-OutputArea {selector}").first.wait_for(timeout=60_000)
    wait_until_idle(page)
    return page


def move(page: Page, name: str) -> float:
    """Milliseconds from one press of an arrow key on the slider to what it shows."""
    page.bring_to_front()
    page.get_by_role("slider").focus()
    page.evaluate(WATCH, SHOWN[name])
    page.keyboard.press("ArrowRight")
    taken = page.evaluate("window.moved")
    wait_until_idle(page)
    return taken


def main() -> int:
    path = chromium.find()
    if path is None:
        print("No browser found: the panels' times are not measured.")
        return 0
    with (
        tempfile.TemporaryDirectory() as home,
        serve(Path(home)) as lab,
        sync_playwright() as playwright,
        playwright.chromium.launch(executable_path=path, args=BROWSER_ARGS) as browser,
    ):
        pages = {name: opened(browser.new_page(), lab, name) for name in SUBJECTS}
        rounds = [{name: move(page, name) for name, page in pages.items()} for _ in range(WARM + MOVES)]
    median = {name: statistics.median(taken[name] for taken in rounds[WARM:]) for name in SUBJECTS}
    bare, ours, interact = median.values()
    print(f"\nFrom a key on the slider to what it shows, in Chromium (medians of {MOVES} moves that take turns)")
    for name, taken in median.items():
        print(f"  {name:<44} {taken / bare:6.2f} x   ({taken:.1f} ms)")
    print(f"  the panel's time is {ours / interact:.2f} of interact's")
    return 0


if __name__ == "__main__":
    sys.exit(main())
