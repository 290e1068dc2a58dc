"""Lesson 00: what the page says is so, and what the last word on the installation says."""

import ast
import re
import tomllib
from pathlib import Path

import pytest

from recompute_lab.instruments.grep import SHELL, matches
from recompute_lab.lessons import installation
from recompute_lab.lessons.start_here import LINES, trunk_counts

ROOT = Path(__file__).resolve().parent.parent
SOURCE = (ROOT / "notebooks" / "source" / "00_start_here.py").read_text(encoding="utf-8")


def test_the_trunk_saves_one_more_where_its_guard_is_true():
    assert trunk_counts() == (160, 161)


# --- What the page says -------------------------------------------------------------------


def test_the_page_shows_the_six_lines():
    for letter, line in LINES.items():
        assert f"\n# {letter}   {line}\n" in SOURCE


def test_the_page_counts_its_sample_rightly():
    sample = ast.literal_eval(re.search(r'SAMPLE = ("""\\\n.*?""")', SOURCE, re.S)[1])
    lines = sample.splitlines()
    assert len(lines) == 10 and "on ten lines" in SOURCE
    assert [matches(line) for line in lines] == [True] * 5 + [False] * 5 and "Of the five" in SOURCE


def test_the_shell_line_is_one_line():
    assert SHELL.startswith("grep -rnE ") and "\n" not in SHELL


def test_links_lead_to_lessons_that_are_there():
    for target in re.findall(r"\]\((\w+)\.ipynb\)", SOURCE):
        if not (ROOT / "notebooks" / "source" / f"{target}.py").exists():
            pytest.skip(f"{target} is not written yet")


# --- The installation ---------------------------------------------------------------------


def test_a_good_installation():
    pytest.importorskip("jupyterlab")
    assert installation.problems() == []
    text = installation.machine()
    assert "torch" in text and "CUDA: " in text and "differ from call to call" in text


@pytest.mark.parametrize(
    "needed, sentence",
    [
        ({"torch": (99, 0)}, r"^torch [\d.]+\S* is too old: 99\.0 is needed\."),
        ({"no-such-package": (1, 0)}, "^no-such-package is not installed in this notebook's"),
    ],
)
def test_a_bad_installation(needed, sentence, monkeypatch):
    monkeypatch.setattr(installation, "NEEDED", needed)
    (problem,) = installation.problems()
    assert re.search(sentence, problem)


def test_a_broken_package(monkeypatch):
    def broken(name):
        raise OSError("undefined symbol")

    monkeypatch.setattr(installation.importlib, "import_module", broken)
    monkeypatch.setattr(installation, "NEEDED", {"torch": (2, 6)})
    assert installation.problems()[0].startswith("torch is there, but cannot be loaded (OSError).")


def test_an_old_python(monkeypatch):
    monkeypatch.setattr(installation, "PYTHON", (9, 9))
    assert "is too old: 9.9 is needed." in installation.problems()[0]


def test_the_versions_are_those_of_pyproject():
    if not (ROOT / "pyproject.toml").exists():
        pytest.skip("no pyproject.toml here")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    oldest = {k: ".".join(map(str, v)) for k, v in installation.NEEDED.items()}
    assert sorted(project["dependencies"]) == sorted(f"{k}>={v}" for k, v in oldest.items())
    assert project["requires-python"] == ">=" + ".".join(map(str, installation.PYTHON))
