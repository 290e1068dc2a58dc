"""Finds a browser that Playwright can drive; as a script, prints it or exits 1."""

import os
import shutil
import sys

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
MAC = "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome"


def find() -> str | None:
    """The path of Chromium or Chrome: the one $CHROME names, or the first installed."""
    candidates = [os.environ["CHROME"]] if os.environ.get("CHROME") else [*NAMES, MAC]
    return next(filter(None, map(shutil.which, candidates)), None)


if __name__ == "__main__":
    path = find()
    print(path)
    sys.exit(path is None)
