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

MOVES = 25
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
NAMES = {"bare": BARE, "ours": PANEL, "interact": INTERACT}
# Resolves with the milliseconds from the next key press to what it shows.
WATCH = """([name, area]) => { window.moved = new Promise(resolve => {
    let start;
    addEventListener("keydown", () => { start = performance.now(); }, {capture: true, once: true});
    const watch = new MutationObserver(async () => {
        const shown = area.querySelector(name == "bare" ? ".widget-label:not([style*=none])" : "img");
        if (start === undefined || !shown) return;
        if (name != "bare") {
            if (shown.src == area.last) return;
            watch.disconnect();
            area.last = shown.src;
            await shown.decode();
        }
        else if (shown.textContent == area.last) return;
        else { watch.disconnect(); area.last = shown.textContent; }
        resolve(performance.now() - start);
    });
    const now = area.querySelector(name == "bare" ? ".widget-label:not([style*=none])" : "img");
    area.last = name == "bare" ? now.textContent : now.src;
    watch.observe(area, {subtree: true, childList: true, characterData: true, attributeFilter: ["src"]});
}); }"""


def opened(page: Page, lab: Lab, name: str) -> Page:
    """The page with a notebook that shows one of the three, ready to be moved."""
    write_notebook(lab, f"{name}.ipynb", NAMES[name])
    page.goto(lab.address(f"{name}.ipynb"))
    wait_until_idle(page)
    run_all(page)
    page.get_by_role("slider").wait_for(timeout=60_000)
    if name != "bare":
        page.locator(".jp-OutputArea-output img").first.wait_for(timeout=60_000)
    wait_until_idle(page)
    return page


def move(page: Page, name: str) -> float:
    """Milliseconds from one press of an arrow key on the slider to what it shows."""
    page.bring_to_front()
    page.get_by_role("slider").focus()
    page.evaluate(WATCH, [name, page.locator(".jp-OutputArea").first.element_handle()])
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
        pages = {name: opened(browser.new_page(), lab, name) for name in NAMES}
        times = {name: [move(page, name) for _ in range(3)] and [] for name, page in pages.items()}  # warm first
        for _ in range(MOVES):
            for name, page in pages.items():
                times[name].append(move(page, name))
    median = {name: statistics.median(taken) for name, taken in times.items()}
    print(f"\nFrom a key on the slider to what it shows, in Chromium (medians of {MOVES} moves that take turns)")
    for name, told in (("bare", "bare slider and label"), ("ours", "the threshold panel"), ("interact", "interact")):
        print(f"  {told:<44} {median[name] / median['bare']:6.2f} x   ({median[name]:.1f} ms)")
    print(f"  the threshold panel takes {median['ours'] / median['interact']:.2f} of what interact takes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
