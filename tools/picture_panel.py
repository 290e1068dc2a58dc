"""Pictures of lesson 02's panel for the README, as it is used: an animation of its cap moving, and a still.

    python tools/picture_panel.py

Opens JupyterLab in Chromium, as tests/browser does, moves the cap by arrow keys, and photographs the panel. Needs a
browser; writes notebooks/images/threshold_panel.gif and .png.
"""

import io
import itertools
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests" / "browser"), str(ROOT / "notebooks")]

import chromium  # noqa: E402
from conftest import BROWSER_ARGS, Lab, serve, write_notebook  # noqa: E402
from PIL import Image, ImageChops  # noqa: E402
from playwright.sync_api import Page, expect, sync_playwright  # noqa: E402
from test_lessons import run_all, wait_until_idle  # noqa: E402

FOLDER = ROOT / "notebooks" / "images"
NAME = "threshold_panel"
CAPS = range(1, 26)
STILL = 16  # where two passes disagree most often
MOVE = 240  # milliseconds that a frame stays
PAUSES = {CAPS[0]: 1300, 15: 700, 16: 1600, 17: 700, CAPS[-1]: 1600}
COLOURS = 64
BARE = ".widget-hbox:has(> .jupyter-button) { display: none !important; }"  # the row of the button that takes steps
MOST_BYTES, MOST_WIDTH = 600_000, 900


def photographed(page: Page, lab: Lab) -> list[Image.Image]:
    """The panel at each of CAPS."""
    write_notebook(lab, f"{NAME}.ipynb", "from recompute_lab.lessons.threshold import panel\n\npanel = panel()\npanel")
    page.goto(lab.address(f"{NAME}.ipynb"))
    wait_until_idle(page)
    run_all(page)
    panel = page.locator(".jp-OutputArea-output .widget-vbox").first
    sentence = panel.get_by_role("status").first
    expect(sentence).to_contain_text("At cap", timeout=60_000)
    box = panel.get_by_label("Cap (ulps above the limit)")
    box.fill(str(CAPS[0]))
    box.press("Enter")
    panel.get_by_role("slider").focus()
    frames = []
    for cap in CAPS:
        expect(sentence).to_contain_text(f"At cap {cap},")
        wait_until_idle(page)
        panel.get_by_role("img").first.evaluate("img => img.decode()")
        page.wait_for_timeout(100)  # for the page to be painted
        frames.append(Image.open(io.BytesIO(panel.screenshot(style=BARE))).convert("RGB"))
        page.keyboard.press("ArrowRight")
    height = max(frame.height for frame in frames)  # the sentence's lines vary, and nothing may jump
    cards = [Image.new("RGB", (frame.width, height), "white") for frame in frames]
    for card, frame in zip(cards, frames, strict=True):
        card.paste(frame)
    return cards


def animated(frames: list[Image.Image]) -> bytes:
    """A GIF of all frames. One palette, so that nothing flickers; no dithering, which text does not bear.

    What a frame shares with the one before is transparent: that compresses to almost nothing.
    """
    strip = Image.new("RGB", (frames[0].width, sum(frame.height for frame in frames)))
    for place, frame in enumerate(frames):
        strip.paste(frame, (0, place * frame.height))
    palette = strip.quantize(COLOURS, Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
    shades = palette.getpalette()[: 3 * COLOURS]
    palette.putpalette(
        [255 if min(shades[i - i % 3 : i - i % 3 + 3]) > 246 else shade for i, shade in enumerate(shades)]
    )
    cards = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
    shown = [cards[0]]
    for before, card in itertools.pairwise(cards):
        same = (
            ImageChops.difference(before.convert("RGB"), card.convert("RGB"))
            .convert("L")
            .point(lambda d: 255 * (not d))
        )
        shown.append(card.copy())
        shown[-1].paste(COLOURS, mask=same)
    file = io.BytesIO()
    times = [PAUSES.get(cap, MOVE) for cap in CAPS]
    first, *rest = shown
    first.save(
        file, "GIF", save_all=True, append_images=rest, duration=times, loop=0, disposal=1, transparency=COLOURS,
        optimize=False,
    )  # fmt: skip
    return file.getvalue()


def main() -> int:
    path = chromium.find()
    if path is None:
        print("No browser found: install Chromium or Chrome, or name one with CHROME=/path/to/it.", file=sys.stderr)
        return 1
    with (
        tempfile.TemporaryDirectory() as home,
        serve(Path(home)) as lab,
        sync_playwright() as playwright,
        playwright.chromium.launch(executable_path=path, args=BROWSER_ARGS) as browser,
    ):
        frames = photographed(browser.new_page(viewport={"width": 1190, "height": 900}), lab)
    moving = animated(frames)
    if len(moving) > MOST_BYTES or frames[0].width > MOST_WIDTH:
        print(f"{len(moving):,} bytes, {frames[0].width} pixels wide: too large for a README.", file=sys.stderr)
        return 1
    (FOLDER / f"{NAME}.gif").write_bytes(moving)
    frames[CAPS.index(STILL)].save(FOLDER / f"{NAME}.png", optimize=True)
    seconds = sum(PAUSES.get(cap, MOVE) for cap in CAPS) / 1000
    print(f"{NAME}.gif: {len(CAPS)} frames, {seconds:.1f} s, {len(moving):,} bytes, {frames[0].width} pixels wide")
    return 0


if __name__ == "__main__":
    sys.exit(main())
