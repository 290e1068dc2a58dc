"""A JupyterLab of its own and a browser, for the tests that use the lab as a learner does."""

import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import chromium
import nbformat
import pytest
from build import METADATA, kill_tree
from build import ROOT as NOTEBOOKS
from playwright.sync_api import Browser, Page, sync_playwright

BROWSER_ARGS = [
    "--no-sandbox",  # root in a container has no other way
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--disable-quic",
]

# Console errors that say nothing about the lab, each with why.
HARMLESS = (
    # A kernel's restart drops JupyterLab's own questions (its debugger's) to the old one.
    "Canceled future for",
)

# JupyterLab keeps cells out of sight out of the page unless told not to; and it
# would ask the network for news.
SETTINGS = {
    "@jupyterlab/notebook-extension/tracker": {"windowingMode": "none"},
    "@jupyterlab/apputils-extension/notification": {
        "checkForUpdates": False,
        "fetchNews": "false",
    },
}


@dataclass(frozen=True)
class Lab:
    """A running JupyterLab."""

    url: str
    token: str
    folder: Path  # what it shows

    def address(self, notebook: str) -> str:
        """Where the notebook opens, alone: in a workspace that no other test has used."""
        workspace = secrets.token_hex(4)
        return f"{self.url}/lab/workspaces/{workspace}/tree/{notebook}?token={self.token}"


def copy_notebooks(folder: Path) -> None:
    """The learner's notebooks, in a copy that a test may change, stripped.

    Stripped, because a number in a cell's prompt then can only come from this run.
    """
    shutil.copytree(NOTEBOOKS, folder, ignore=shutil.ignore_patterns("source", "my", ".*", "*.py"))
    for path in folder.glob("*.ipynb"):
        notebook = nbformat.read(path, as_version=4)
        for cell in notebook.cells:
            if cell.cell_type == "code":
                cell.execution_count, cell.outputs = None, []
        nbformat.write(notebook, path)


def wait_until_up(lab: Lab, server: subprocess.Popen, log: Path) -> None:
    """Raises RuntimeError, with the log's end, if the server does not answer in a minute."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and server.poll() is None:
        try:
            urllib.request.urlopen(f"{lab.url}/api/status?token={lab.token}", timeout=5).close()
            return
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
    raise RuntimeError("JupyterLab did not start:\n" + log.read_text()[-3000:])


def write_notebook(lab: Lab, name: str, *cells: str) -> None:
    """A notebook of a test's own, in the lab's folder."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells], metadata=METADATA)
    nbformat.write(notebook, lab.folder / name)


@contextmanager
def serve(home: Path) -> Iterator[Lab]:
    """JupyterLab on a loopback port, with nothing of the user's and none of the tracked files: all is in `home`."""
    copy_notebooks(home / "notebooks")
    for plugin, settings in SETTINGS.items():
        path = home / "settings" / f"{plugin}.jupyterlab-settings"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(settings))
    own = {
        "JUPYTERLAB_SETTINGS_DIR": "settings",
        "JUPYTERLAB_WORKSPACES_DIR": "workspaces",
        "JUPYTER_CONFIG_DIR": "config",
        "JUPYTER_DATA_DIR": "data",
        "JUPYTER_RUNTIME_DIR": "runtime",
        "FORWARD_TWICE_PROGRESS": "progress.jsonl",
    }
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    lab = Lab(f"http://127.0.0.1:{port}", secrets.token_hex(16), home / "notebooks")
    log = home / "server.log"
    with log.open("w") as out:
        server = subprocess.Popen(
            [
                *(sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root"),
                *("--ServerApp.ip=127.0.0.1", f"--ServerApp.port={port}"),
                *("--ServerApp.port_retries=0", f"--IdentityProvider.token={lab.token}"),
                f"--ServerApp.root_dir={lab.folder}",
                # Should this process die without getting to the teardown.
                "--ServerApp.shutdown_no_activity_timeout=600",
                "--MappingKernelManager.cull_idle_timeout=300",
            ],
            env=os.environ | {name: str(home / folder) for name, folder in own.items()},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    try:
        wait_until_up(lab, server, log)
        yield lab
    finally:
        server.terminate()  # it ends its kernels, then itself
        try:
            server.wait(20)
        except subprocess.TimeoutExpired:
            kill_tree(server.pid)
            server.wait()


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """One JupyterLab for all tests."""
    with serve(tmp_path_factory.mktemp("lab")) as lab:
        yield lab


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Chromium or Chrome. Without one the tests are skipped, or fail if REQUIRE_BROWSER is set."""
    path = chromium.find()
    if path is None:
        no_browser = pytest.fail if os.environ.get("REQUIRE_BROWSER") else pytest.skip
        no_browser("no browser found: install Chromium or Chrome, or set CHROME=/path/to/it")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=BROWSER_ARGS)
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A fresh page; after the test, no error may stand in its console."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    errors: list[str] = []
    page.on(
        "console",
        lambda m: errors.append(f"{m.text} ({m.location.get('url')})") if m.type == "error" else None,
    )
    page.on("pageerror", lambda error: errors.append(str(error)))
    yield page
    context.close()
    errors = [error for error in errors if not any(known in error for known in HARMLESS)]
    assert not errors, "errors in the browser's console:\n" + "\n".join(errors)
