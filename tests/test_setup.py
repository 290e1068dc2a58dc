"""`make` fails in one sentence that says what to do, whatever is missing. Nothing is installed here."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HOUSE = Path(__file__).resolve().parent.parent

pytestmark = pytest.mark.skipif(not shutil.which("sh"), reason="there is no sh on this machine")


def script(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def setup(folder: Path, python: str) -> str:
    """What setup.sh says on stderr when it fails in a folder."""
    for name in ("requirements.lock", "pyproject.toml"):
        shutil.copy(HOUSE / name, folder)
    done = subprocess.run(
        ["sh", HOUSE / "tools" / "setup.sh", python, "2.13.0"],
        cwd=folder,
        capture_output=True,
        text=True,
        env=os.environ | {"PATH": f"{folder}:{os.environ['PATH']}"},
    )
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 1, done
    return done.stderr


def test_no_python(tmp_path):
    assert setup(tmp_path, "no-such-python").startswith("There is no 'no-such-python' on the PATH")


def test_what_is_no_python_at_all(tmp_path):
    assert "does not run as a Python" in setup(tmp_path, script(tmp_path / "broken", "exit 127"))
    assert "does not run as a Python" in setup(tmp_path, str(tmp_path))  # a folder


def test_an_old_python(tmp_path):
    old = 'case "$*" in *version_info*) exit 1;; *--version*) echo Python 3.9.2;; esac'
    assert "is Python 3.9.2, but torch 2.13.0" in setup(tmp_path, script(tmp_path / "old", old))


@pytest.mark.parametrize(
    "pip, sentence",
    [
        ("after connection broken by NewConnectionError", "The package index could not be reached"),
        ("NameResolutionError: Failed to resolve", "The package index could not be reached"),
        ("ERROR: No matching distribution found for torch==2.13.0", "torch 2.13.0 has no build for this machine"),
        ("ERROR: No matching distribution found for anyio==4.16.0", "The package index does not offer anyio==4.16.0:"),
        ("OSError: No space left on device", "The disk is full"),
        ("something else", "The install failed"),
    ],
)
def test_an_install_that_fails(tmp_path, pip, sentence):
    # A python that is one but for venv and pip, which only say their words.
    (tmp_path / "words").write_text(pip + "\n")
    stand_in = script(
        tmp_path / "python",
        'case "$*" in\n'
        f"    *venv\\ .venv) mkdir -p .venv/bin; cp '{tmp_path}/python' .venv/bin/python;;\n"
        f"    *'pip install'*) cat '{tmp_path}/words'; exit 1;;\n"
        f"    *_base_executable*) echo '{tmp_path}/python';;\n"
        f'    *) exec "{sys.executable}" "$@";;\n'
        "esac",
    )
    assert setup(tmp_path, stand_in).startswith(sentence)
    assert not (tmp_path / ".venv" / ".installed").exists()
