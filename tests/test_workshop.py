"""notebooks/workshop.md: its minutes add up, and what it quotes is what the lessons print."""

import json
import re
import sys
from datetime import date
from functools import cache
from pathlib import Path

import build
import checks
import course
import nbformat
import pytest

HOUSE = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(HOUSE / "tools"))

import run_times  # noqa: E402

NOTEBOOKS = HOUSE / "notebooks"
PAGE = (NOTEBOOKS / "workshop.md").read_text(encoding="utf-8")
LESSONS = {source.stem: source for source in build.sources()}
NUMBER = re.compile(r"\d+(?:,\d{3})*(?:\.\d+)?")


def parts(text: str, level: int) -> dict[str, str]:
    """Heading to what stands below it, of all headings of a level."""
    pieces = re.split(rf"^{'#' * level} (.+)$", text, flags=re.MULTILINE)
    return {
        title: re.split(rf"^#{{1,{level}}} ", body, flags=re.MULTILINE)[0]
        for title, body in zip(pieces[1::2], pieces[2::2], strict=True)
    }


def rows(text: str) -> list[dict[str, str]]:
    """The rows of the first table in a text, by column."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    head, _, *body = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in lines]
    return [dict(zip(head, row, strict=True)) for row in body]


AGENDAS = {title: body for title, body in parts(PAGE, 3).items() if title.startswith("Agenda")}
SECTIONS = {title: body for title, body in parts(PAGE, 3).items() if re.match(r"\d\d · ", title)}


@cache
def notebook(name: str):
    return nbformat.read(NOTEBOOKS / name, as_version=4)


# --- Agendas ---------------------------------------------------------------------------


def test_there_are_three_agendas():
    assert [int(re.search(r"(\d+) minutes", title)[1]) for title in AGENDAS] == [90, 225, 450]


@pytest.mark.parametrize("title", AGENDAS)
def test_an_agendas_minutes_are_its_titles(title):
    table, passed = rows(AGENDAS[title]), 0
    for row in table:
        hours, minutes = map(int, row["at"].split(":"))
        assert 60 * hours + minutes == passed, f"{row['what']} begins at {passed} minutes, not at {row['at']}"
        passed += int(row["minutes"])
    assert passed == int(re.search(r"(\d+) minutes", title)[1])


@pytest.mark.parametrize("title", AGENDAS)
def test_nobody_sits_for_more_than_ninety_minutes(title):
    sitting = 0
    for row in rows(AGENDAS[title]):
        rest = row["what"].startswith(("break", "lunch"))
        sitting = 0 if rest else sitting + int(row["minutes"])
        assert sitting <= 90, f"{row['at']}: a break is due"


# --- Lessons ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", LESSONS)
def test_every_lesson_has_its_section(name):
    (body,) = (body for title, body in SECTIONS.items() if title.startswith(f"{name[:2]} · "))
    body = " ".join(body.split())
    for told in ("oom ", "stumble", "If it fails", "eave out first"):
        assert told in body, f"{name}: says nothing of '{told}'"


POLLS = [
    (title, row)
    for title, body in SECTIONS.items()
    if title[:2] in {name[:2] for name in LESSONS} and "|" in body
    for row in rows(body)
]


def said(name: str, to: str) -> set[str]:
    """All numbers in the stored outputs of a section that are compared."""
    texts, level = [], 0
    for cell in notebook(name).cells:
        for heading in course.headings(cell.source) if cell.cell_type == "markdown" else ():
            if course.anchor(heading.text) == to:
                level = heading.level
            elif heading.level <= level:
                level = 0
        if level and not checks.is_ignored(cell):
            texts.append(checks.text_of(cell))
    return set(NUMBER.findall("\n".join(texts)))


@pytest.mark.parametrize(("title", "row"), POLLS, ids=lambda value: value[:2] if isinstance(value, str) else "")
def test_a_poll_is_the_lessons_own_and_its_answer_was_printed(title, row):
    """Each number in the column *measured* stands in a compared output of that section."""
    file, _, to = re.search(r"\(([^)]+)\)", row["section"])[1].partition("#")
    assert file.startswith(title[:2]), "a poll of another lesson"
    assert "Predict" in course.section(NOTEBOOKS / file, to), f"{file} asks for no prediction in '{to}'"
    missing = set(NUMBER.findall(row["measured"])) - said(file, to)
    assert not missing, f"'{to}' of {file} prints no {', '.join(sorted(missing))}: {row['measured']}"


def test_there_are_polls():
    assert len(POLLS) >= 3 * 9


# --- What is named --------------------------------------------------------------------


@pytest.mark.parametrize("named", sorted(set(re.findall(r"\b(\d\d)\.(\d)\b", re.search(r"Exercises that.*", PAGE)[0]))))
def test_an_exercise_that_is_named_is_there(named):
    lesson, number = named
    (name,) = (name for name in LESSONS if name.startswith(lesson))
    assert re.search(rf"\*\*(?:Exercise )?{number}\.", course.whole(LESSONS[name])), f"{name} has no exercise {number}"


@pytest.mark.parametrize("target", sorted(set(re.findall(r"`make ([a-z-]+)", PAGE))))
def test_a_make_target_that_is_named_is_there(target):
    assert re.search(rf"^{target}:", (HOUSE / "Makefile").read_text(), re.MULTILINE)


# --- Run times -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def times() -> dict:
    return json.loads((NOTEBOOKS / "data" / "run_times.json").read_text())


def test_the_table_is_what_the_times_give(times):
    assert run_times.with_table(PAGE, times) == PAGE, "run make times"


def test_the_times_are_of_every_notebook_and_tell_nothing_else_of_the_machine(times):
    assert list(times["seconds"]) == list(LESSONS), "run make times"
    assert all(set(both) == {"learner", "solved"} for both in times["seconds"].values())
    assert set(times) == {"date", "cpus", "python", "torch", "load", "rounds", "floor", "seconds"}
    assert times["rounds"] >= 3 and date.fromisoformat(times["date"])
    for key in ("python", "torch"):
        assert re.fullmatch(r"\d+\.\d+\.\d+(\+\w+)?", times[key])


def test_runs_take_turns_and_the_median_counts(monkeypatch):
    order, clock = [], iter([0, 1, 0, 5, 0, 9, 0, 6, 0, 2, 0, 7])
    monkeypatch.setattr(run_times.time, "perf_counter", lambda: next(clock))
    took = run_times.in_turns({"a": lambda: order.append("a"), "b": lambda: order.append("b")}, rounds=3)
    assert order == ["a", "b"] * 3 and took == {"a": 2, "b": 6}
    with pytest.raises(ValueError, match="rounds must be 1 or more, not 0"):
        run_times.in_turns({}, rounds=0)


def test_what_stands_above_the_floor():
    times = {"date": "2026-01-02", "cpus": 2, "python": "3.12.1", "torch": "2.13.0", "load": 1.0, "rounds": 3}
    times |= {"floor": 2.0, "seconds": {"00_a": {"learner": 5.0, "solved": 6.5}}}
    assert run_times.average_above(times) == 3.75
    assert "| 00_a | 5.0 | 3.0 | 6.5 | 4.5 |" in run_times.table(times)
    text = f"before\n{run_times.BEGIN}\nold\n{run_times.END}\nafter\n"
    fresh = run_times.with_table(text, times)
    assert fresh.startswith("before\n") and fresh.endswith("\nafter\n") and "old" not in fresh
    assert run_times.with_table(fresh, times) == fresh
    assert "Its load was 1.0." in fresh
    assert "busy, so all times are too long" in run_times.table(times | {"load": 5.0})
    assert "not recorded" in run_times.table(times | {"load": None})
    with pytest.raises(ValueError, match="must stand in the text once each"):
        run_times.with_table("nothing", times)


def test_a_notebook_is_run_as_stored_without_its_outputs():
    name = f"{next(iter(LESSONS))}.ipynb"
    bare = run_times.stripped(NOTEBOOKS / name)
    assert [cell.source for cell in bare.cells] == [cell.source for cell in notebook(name).cells]
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in bare.cells)


def test_the_floor_runs_and_no_lesson_imports_less(tmp_path):
    done = build.execute(run_times.floor(), tmp_path, timeout=120)
    assert done.cells[0].execution_count == 1 and not done.cells[0].outputs
    for name in LESSONS:
        assert "recompute_lab" in "".join(c.source for c in notebook(f"{name}.ipynb").cells if c.cell_type == "code")
