"""Where the learner stands, in a cell and on the command line."""

import importlib
import json
import os
import subprocess
import sys
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sample_cards import sample_deck

from recompute_lab import cli, lessons
from recompute_lab.lessons import progress
from recompute_lab.lessons.exercise import Exercises
from recompute_lab.lessons.overview import catalogue, overview
from recompute_lab.lessons.progress import NOT_KEPT, Graded, Journal, Passed, line_of

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture
def journal(tmp_path, monkeypatch):
    path = tmp_path / "progress.jsonl"
    monkeypatch.setenv(progress.VARIABLE, str(path))
    return Journal(path)


def test_the_catalogue_is_what_the_lessons_have():
    """Every exercise that there is, found by importing all modules, is in the catalogue under its lesson."""
    folder, found = Path(lessons.__file__).parent, defaultdict(set)
    for path in folder.rglob("*.py"):
        module = ".".join(("recompute_lab", "lessons", *path.relative_to(folder).with_suffix("").parts))
        for value in vars(importlib.import_module(module.removesuffix(".__init__"))).values():
            if isinstance(value, Exercises):
                for exercise in value.all.values():
                    found[progress.lesson_of(exercise.module)].add(exercise.name)
    listed = catalogue()
    assert {lesson: set(names) for lesson, names in listed.items()} == found
    assert all(lesson.isdecimal() for lesson in listed), "a module's docstring begins with its lesson's number"
    assert "05" in listed and "momentum" in listed["05"]


def test_the_table(tmp_path, journal):
    journal.append(Passed("04", "naive", NOON), Passed("04", "both_ways", NOON + timedelta(days=3)))
    journal.append(Passed("04", "naive", NOON + timedelta(days=9)), Passed("04", "no_such_exercise", NOON))
    journal.append(Graded("lost-mask", "Again", NOON), Graded("streams", "Easy", NOON), Graded("gone", "Again", NOON))
    deck = sample_deck(tmp_path)
    lines = overview(journal, deck, lambda: NOON + timedelta(hours=1)).splitlines()
    assert lines[0].split() == ["lesson", "checks", "passed", "first", "last", "cards", "due", "cards", "seen"]
    of = len(catalogue()["04"])
    (line,) = (line for line in lines if line.startswith("04 "))
    assert line.split() == ["04", "2", "of", str(of), "2026-03-01", "2026-03-04", "1", "2", "of", "3"]
    (line,) = (line for line in lines if line.startswith("03 "))
    assert line.split()[:3] == ["03", "0", "of"]
    total = sum(map(len, catalogue().values()))
    assert lines[-1].split() == ["all", "2", "of", str(total), "1", "2", "of", "6"]


def test_where_nothing_is_kept_a_sentence_says_so(monkeypatch):
    monkeypatch.delenv(progress.VARIABLE, raising=False)
    monkeypatch.delenv("JPY_SESSION_NAME", raising=False)
    assert overview() == NOT_KEPT


def test_what_cannot_be_read_is_said_below_the_table(journal):
    journal.path.write_bytes(b"{")
    assert overview(journal).splitlines()[-1].endswith("was skipped as unreadable; nothing was deleted.")


# --- The command line


def test_progress_shows_the_table(journal, capsys):
    journal.append(Passed("04", "naive", NOON))
    assert cli.main(["progress"]) == 0
    assert "2026-03-01" in capsys.readouterr().out


def test_progress_off(monkeypatch, capsys):
    monkeypatch.setenv(progress.VARIABLE, "off")
    assert cli.main(["progress"]) == cli.WRONG_USE
    assert "FORWARD_TWICE_PROGRESS is off" in capsys.readouterr().err


def test_progress_is_copied_and_taken_in(journal, tmp_path, capsys):
    journal.append(Passed("04", "naive", NOON), Passed("05", "momentum", NOON))
    copy = tmp_path / "copy.jsonl"
    assert cli.main(["progress", "--export", str(copy)]) == 0
    assert capsys.readouterr().out == f"2 lines written to {copy}\n"
    assert cli.main(["progress", "--export", str(copy)]) == cli.WRONG_USE
    assert "copy.jsonl is there already: choose another name" in capsys.readouterr().err
    journal.path.write_bytes(line_of(Passed("04", "naive", NOON)) + b"\n")
    assert cli.main(["progress", "--import", str(copy)]) == 0
    assert capsys.readouterr().out == f"1 line added from {copy}\n"
    assert len(journal.events()) == 2
    assert cli.main(["progress", "--import", str(tmp_path / "none")]) == cli.WRONG_USE
    assert "none: No such file or directory" in capsys.readouterr().err


def test_cards_are_printed(capsys):
    assert cli.main(["cards"]) == 0
    everything = capsys.readouterr().out
    assert everything.startswith("# Interview cards\n") and "\n### " in everything
    assert cli.main(["cards", "--level", "onsite"]) == 0
    some = capsys.readouterr().out
    assert 0 < some.count("\n### ") < everything.count("\n### ")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--topic", "no such"], "there is no topic 'no such'; there are: "),
        (["--level", "junior"], "there is no level 'junior'; there are: screen, onsite, staff"),
        (["--minutes", "0"], "there is no such card"),
    ],
)
def test_cards_that_are_not_there(arguments, said, capsys):
    assert cli.main(["cards", *arguments]) == cli.WRONG_USE
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("command", ["cards", "progress"])
def test_no_command_imports_what_takes_long(command, tmp_path):
    code = (
        "import sys, json; from recompute_lab.cli import main; main([sys.argv[1]]);"
        "print(json.dumps(sorted({'torch', 'numpy', 'matplotlib', 'ipywidgets'} & set(sys.modules))), file=sys.stderr)"
    )
    environment = os.environ | {progress.VARIABLE: str(tmp_path / "p.jsonl")}
    done = subprocess.run([sys.executable, "-c", code, command], capture_output=True, text=True, env=environment)
    assert json.loads(done.stderr) == []


def test_a_reader_who_has_seen_enough():
    shell = f"'{sys.executable}' -m recompute_lab cards | head -1"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", shell], capture_output=True, text=True)
    assert (done.stdout, done.stderr, done.returncode) == ("# Interview cards\n", "", 0)
