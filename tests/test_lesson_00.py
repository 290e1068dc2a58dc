"""Lesson 00: every exercise takes the right answer and turns down wrong ones, saying why."""

import ast
import re
import tomllib
from pathlib import Path

import pytest
import torch

from recompute_lab.instruments.grep import SHELL, matches
from recompute_lab.lessons import installation
from recompute_lab.lessons.start_here import LINES, check, guarded_clamp, hint, trunk_counts

ROOT = Path(__file__).resolve().parent.parent
SOURCE = (ROOT / "notebooks" / "source" / "00_start_here.py").read_text(encoding="utf-8")


def clamped(x):
    x = x.clamp(-1.0, 1.0)
    return x.sin()


def selected(x):
    return torch.where(x.abs() > 1.0, x.sign(), x).sin()


def forgotten(x):
    return x.sin()


def softened(x):
    return x.tanh().sin()


def still_guarded(x):
    if x.abs().max() > 1.0:
        x = x.clamp(-1.0, 1.0)
    return x.sin()


def guarded_otherwise(x):
    return clamped(x) if x.detach().abs().sum() > 5.0 else x.sin()


def returns_nothing(x):
    x.clamp(-1.0, 1.0).sin()


def detached(x):
    return x.detach().clamp(-1.0, 1.0).sin()


def misspelt(x):
    return x.clmp(-1.0, 1.0)


def straight_through(x):
    return (x + (x.clamp(-1.0, 1.0) - x).detach()).sin()


RIGHT = [
    (check.lengths, [8, 7, 6, 5, 4, 3, 2, 1]),
    (check.lengths, (9, 8, 7, 5, 4, 2, 1)),
    (check.unconditional, clamped),
    (check.unconditional, selected),
    (check.found, "BDF"),
    (check.found, ["F", "D", "B"]),
    (check.found, "b, d, f"),
    (check.lengths, (length for length in range(8, 0, -1))),
]
WRONG = [
    (check.lengths, [6] * 6, "the peak of your cut is 14 activations, and 14"),
    (check.lengths, [1, 2, 3, 4, 5, 6, 7, 8], "many inputs and a long segment"),
    (check.lengths, [36], "the peak of your cut is"),
    (check.lengths, [6, 5, 4], "add up to 36 layers; yours add up to 15"),
    (check.lengths, [40, -4], "whole numbers from 1 up"),
    (check.lengths, [35.5, 0.5], "expected a whole number, got 35.5"),
    (check.lengths, 6, "expected a list of lengths"),
    (check.lengths, dict.fromkeys(range(8, 0, -1), 1), "expected a list of lengths"),
    (check.lengths, "87654321", "expected a list of lengths"),
    (check.lengths, ["8", "7", "6", "5", "4", "3", "2", "1"], "expected a whole number, got '8'"),
    (check.lengths, [float("nan"), 36], "expected a whole number, got nan"),
    (check.lengths, [True] * 36, "expected a whole number, got True"),
    (check.unconditional, guarded_clamp, "2 for inputs within 1, 3 for inputs mostly beyond 1"),
    (check.unconditional, still_guarded, "number of saved tensors still depends"),
    (check.unconditional, guarded_otherwise, "for one below -1, the output should be"),
    (check.unconditional, forgotten, "mostly beyond 1, the output should be"),
    (check.unconditional, softened, "for inputs within 1, the output should be"),
    (check.unconditional, straight_through, "the gradient should be"),
    (check.unconditional, returns_nothing, "did you forget return"),
    (check.unconditional, detached, "the output or its gradient is missing"),
    (check.unconditional, misspelt, "raised AttributeError"),
    (check.found, "BD", "1 of 6 judged wrongly. The grep finds F"),
    (check.found, "ABDF", "1 of 6 judged wrongly. The grep walks past A"),
    (check.found, "ACE", "6 of 6 judged wrongly"),
    (check.found, "xyz", "write letters from A to F"),
    (check.found, 3, "write letters from A to F"),
    (check.found, {"B": True, "D": True, "F": True, "A": False}, "write letters from A to F"),
    (check.found, [["B"], ["D"]], "write letters from A to F"),
]


def stub(x): ...


@pytest.mark.parametrize("exercise, answer", RIGHT)
def test_the_right_answers(exercise, answer):
    verdict = exercise.judge(answer)
    assert verdict.status == "right" and verdict.message, verdict


@pytest.mark.parametrize("exercise, answer, why", WRONG)
def test_wrong_answers_are_told_why(exercise, answer, why):
    verdict = exercise.judge(answer)
    assert verdict.status == "not yet" and why in verdict.message, verdict


@pytest.mark.parametrize("name", check.all)
def test_stubs_and_hints(name, capsys):
    for nothing in (..., stub):
        assert getattr(check, name).judge(nothing).status == "not attempted yet"
    count = len(getattr(check, name).hints)
    assert count >= 2
    for _ in range(count + 1):
        getattr(hint, name)()
    assert f"hint {count} of {count}" in capsys.readouterr().out


def test_exercises_leave_the_random_stream_alone():
    state = torch.get_rng_state()
    trunk_counts()
    for exercise, answer in RIGHT:
        exercise.judge(answer)
    assert torch.equal(torch.get_rng_state(), state)


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
