"""The learner's journal loses nothing, says what it cannot read, and stays out of the way of the lessons."""

import importlib
import json
import multiprocessing
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from recompute_lab.lessons import exercise, progress
from recompute_lab.lessons.progress import Graded, Journal, Passed, chosen_path, event_of, line_of, session_path

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
PASSED = Passed("04", "naive", NOON)
GRADED = Graded("lost-mask", "Good", NOON + timedelta(hours=1), 3, 4, 70)


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "my" / "progress.jsonl"


@pytest.fixture
def elsewhere(monkeypatch):
    """A session that nobody has opened."""
    monkeypatch.delenv(progress.VARIABLE, raising=False)
    monkeypatch.delenv("JPY_SESSION_NAME", raising=False)


# --- Lines


def test_a_line_says_its_version_and_its_time_in_utc():
    fields = json.loads(line_of(PASSED))
    assert fields == {"v": 1, "kind": "check", "lesson": "04", "exercise": "naive", "at": "2026-03-01T12:00:00+00:00"}
    late = Passed("04", "naive", NOON.astimezone(timezone(timedelta(hours=5))))
    assert line_of(late) == line_of(PASSED)
    for event in (PASSED, GRADED):
        assert event_of(line_of(event)) == event and event_of(line_of(event)).at.tzinfo is UTC


def test_lines_of_version_0_are_read():
    check = {"kind": "check", "lesson": "04", "exercise": "naive", "at": NOON.timestamp()}
    assert event_of(json.dumps(check).encode()) == PASSED
    for number, grade in enumerate(("Again", "Hard", "Good", "Easy"), 1):
        card = {"kind": "card", "card": "lost-mask", "grade": number, "at": NOON.timestamp()}
        assert event_of(json.dumps(card).encode()) == Graded("lost-mask", grade, NOON)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"\xff\xfe",
        b"[]",
        b"7",
        b"{}",
        b'{"v": 1}',
        b'{"v": "1", "kind": "check"}',
        b'{"v": -1, "kind": "check"}',
        b'{"v": 1, "kind": "nap", "at": "2026-03-01T12:00:00+00:00"}',
        b'{"v": 1, "kind": "check", "lesson": "04", "exercise": "naive", "at": "2026-03-01T12:00:00"}',
        b'{"v": 1, "kind": "check", "lesson": "04", "exercise": ["naive"], "at": "2026-03-01T12:00:00+00:00"}',
        b'{"v": 1, "kind": "card", "card": "x", "grade": "Fine", "at": "2026-03-01T12:00:00+00:00"}',
        b'{"v": 1, "kind": "card", "card": "x", "grade": "Good", "at": "2026-03-01T12:00:00+00:00", "said": null}',
        b'{"kind": "card", "card": "x", "grade": 5, "at": 1e9}',
        b'{"kind": "card", "card": "x", "grade": 1, "at": 1e99}',
        b'{"v": 1, "kind": "check", "lesson": "04", "exercise": "naive", "at": "0001-01-01T00:00:00+00:00"}',
        b'{"v": 1, "kind": "card", "card": "x", "grade": "Easy", "at": "9999-12-31T23:59:59+00:00"}',
        b'{"v": 1, "kind": "card", "card": "x", "grade": "Good", "at": "2026-03-01T12:00:00+00:00", "said": NaN}',
        b"[" * 100_000,
    ],
)
def test_what_is_no_event_is_skipped_and_stays_where_it_is(path, line):
    journal = Journal(path)
    journal.append(PASSED)
    with path.open("ab") as file:
        file.write(line + b"\n")
    before = path.read_bytes()
    journal.append(GRADED)
    assert journal.events() == [PASSED, GRADED]
    assert path.read_bytes().startswith(before)
    if line:
        assert journal.notes() == [f"1 line of {path} was skipped as unreadable; nothing was deleted."]


def test_lines_of_a_later_version_are_kept_and_counted(path):
    journal = Journal(path)
    journal.append(PASSED)
    with path.open("ab") as file:
        file.write(b'{"v": 2, "what": 1}\n{"v": 3}\n')
    assert journal.events() == [PASSED]
    (said,) = journal.notes()
    assert said.startswith("2 lines of ") and "a later version of the course" in said and "nothing was deleted" in said
    assert b'{"v": 2, "what": 1}' in path.read_bytes()


# --- The file


def test_events_are_there_for_the_next_session_and_by_time(path):
    Journal(path).append(GRADED)
    Journal(path).append(PASSED)
    assert Journal(path).events() == [PASSED, GRADED]
    assert Journal(path).notes() == []


def test_a_file_of_another_system_is_read(path):
    Journal(path).append(PASSED, GRADED)
    whole = path.read_bytes()
    for given in (b"\xef\xbb\xbf" + whole, whole.replace(b"\n", b"\r\n"), b"\n\n" + whole + b" \n"):
        path.write_bytes(given)
        assert Journal(path).events() == [PASSED, GRADED] and Journal(path).notes() == []


def test_zeros_that_a_power_failure_leaves_cost_no_other_line(path):
    Journal(path).append(PASSED)
    whole = path.read_bytes()
    path.write_bytes(whole + b"\0" * 4096 + line_of(GRADED) + b"\n" + b"\0" * 10)
    later = Passed("05", "after", NOON + timedelta(hours=2))
    Journal(path).append(later)
    assert Journal(path).events() == [PASSED, GRADED, later] and Journal(path).notes() == []


def test_no_file_and_no_path_are_no_trouble(path):
    assert Journal(path).events() == [] and Journal(path).notes() == [] and not path.exists()
    journal = Journal()
    journal.append(PASSED)
    assert journal.events() == [PASSED] and journal.notes() == []


def test_a_line_cut_off_at_any_byte_costs_that_line_alone(path):
    journal = Journal(path)
    journal.append(PASSED)
    journal.append(GRADED)
    whole = path.read_bytes()
    first = whole.index(b"\n") + 1
    for length in range(first, len(whole) + 1):
        path.write_bytes(whole[:length])
        complete = [PASSED, GRADED] if length >= len(whole) - 1 else [PASSED]  # the line's end may be missing
        assert journal.events() == complete
        assert len(journal.notes()) == (first < length < len(whole) - 1)
        later = Passed("05", "after", NOON + timedelta(hours=2))
        journal.append(later)
        assert journal.events() == [*complete, later]
        assert path.read_bytes().startswith(whole[:length])


def test_a_file_that_cannot_be_written_leaves_the_session_going(tmp_path):
    (tmp_path / "my").write_text("a file where the folder should be")
    journal = Journal(tmp_path / "my" / "progress.jsonl")
    journal.append(PASSED)
    journal.append(GRADED)
    assert journal.events() == [PASSED, GRADED]
    (said,) = journal.notes()
    assert "cannot be written" in said and "kept until this session ends" in said
    (tmp_path / "my").unlink()
    later = Passed("05", "later", NOON + timedelta(hours=2))
    journal.append(later)  # as soon as there is a place, all of it is written
    assert Journal(tmp_path / "my" / "progress.jsonl").events() == journal.events() == [PASSED, GRADED, later]
    assert journal.notes() == []


def test_a_folder_in_the_files_place(tmp_path):
    journal = Journal(tmp_path)
    journal.append(PASSED)
    assert journal.events() == [PASSED] and len(journal.notes()) == 1


def test_what_could_not_be_read_is_said_as_long_as_it_cannot(path):
    path.mkdir(parents=True)
    journal = Journal(path)
    assert journal.events() == [] and "cannot be read (Is a directory)" in journal.notes()[0]
    path.rmdir()
    Journal(path).append(PASSED)
    assert journal.events() == [PASSED] and journal.notes() == []


def test_a_full_disk_is_no_lost_event():
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    journal = Journal("/dev/full")
    journal._lines = lambda: []  # it has no end to read to
    journal.append(PASSED)
    assert journal.events() == [PASSED] and "cannot be written" in journal.notes()[0]


def _write_many(path, name, count):
    journal = Journal(path)
    for number in range(count):
        journal.append(Passed(name, str(number), NOON))


def test_processes_that_write_at_once_lose_nothing(path):
    many = multiprocessing.get_context("spawn")
    writers = [many.Process(target=_write_many, args=(path, str(n), 100)) for n in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    found = {(event.lesson, event.exercise) for event in Journal(path).events()}
    assert found == {(str(n), str(number)) for n in range(4) for number in range(100)}
    assert Journal(path).notes() == []


SAVES = """
import sys
from datetime import UTC, datetime
from recompute_lab.lessons.progress import Journal, Passed

journal, number = Journal(sys.argv[1]), int(sys.argv[2])
print("ready", flush=True)
while True:
    journal.append(Passed("04", f"{number}-" + "x" * 9000, datetime.now(UTC)))  # more than a page
    print(number, flush=True)
    number += 1
"""


def test_what_was_saved_is_there_after_kill_9(path):
    acknowledged = []
    for run in range(12):
        saving = subprocess.Popen(
            [sys.executable, "-c", SAVES, str(path), str(run * 1_000_000)], stdout=subprocess.PIPE, text=True
        )
        assert saving.stdout.readline() == "ready\n"
        time.sleep(0.002 * run)
        saving.send_signal(signal.SIGKILL)
        said, _ = saving.communicate()
        acknowledged += said.split("\n")[:-1]
        names = [event.exercise.partition("-")[0] for event in Journal(path).events()]
        assert set(acknowledged) <= set(names) and len(names) == len(set(names))
    assert acknowledged
    journal = Journal(path)
    count = len(journal.events())
    journal.append(PASSED)
    assert len(journal.events()) == count + 1


# --- Copies


def test_export_never_overwrites(path, tmp_path):
    journal, copy = Journal(path), tmp_path / "copy.jsonl"
    journal.append(PASSED, GRADED)
    assert journal.export(copy) == 2
    assert Journal(copy).events() == [PASSED, GRADED]
    with pytest.raises(FileExistsError, match=r"copy.jsonl is there already: choose another name"):
        journal.export(copy)


def test_a_copy_that_does_not_fit_is_none_and_says_which_file(path, tmp_path):
    resource = pytest.importorskip("resource", reason="no limits here")
    journal, copy, limit = Journal(path), tmp_path / "copy.jsonl", resource.getrlimit(resource.RLIMIT_FSIZE)
    journal.append(*(Passed("04", str(n), NOON) for n in range(100)))
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limit[1]))
    try:
        with pytest.raises(OSError, match="copy.jsonl"):
            journal.export(copy)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert not copy.exists() and journal.export(copy) == 100


def test_onto_itself_nothing_changes(path):
    journal = Journal(path)
    journal.append(PASSED, GRADED)
    before = path.read_bytes()
    with pytest.raises(FileExistsError):
        journal.export(path)
    assert journal.merge(path) == 0 and path.read_bytes() == before


KILLED = """
import os, sys
from datetime import UTC, datetime
from recompute_lab.lessons.progress import Journal, Passed

where, length, write = sys.argv[2], int(sys.argv[3]), os.write
die = lambda *_: os.kill(os.getpid(), 9)
if where == "write":
    os.write = lambda file, text: (write(file, text[:length]), die())
else:
    os.fsync = die
Journal(sys.argv[1]).append(Passed("04", "killed", datetime(2026, 3, 1, 13, tzinfo=UTC)))
"""


@pytest.mark.parametrize(("where", "length"), [("write", 0), ("write", 1), ("write", 60), ("fsync", 0)])
def test_killed_in_the_middle_of_a_write_and_before_it_is_on_the_disk(path, where, length):
    Journal(path).append(PASSED)
    killed = subprocess.run([sys.executable, "-c", KILLED, str(path), where, str(length)])
    assert killed.returncode == -signal.SIGKILL
    later = Passed("05", "after", NOON + timedelta(hours=2))
    Journal(path).append(later)
    names = [event.exercise for event in Journal(path).events()]
    assert names == (["naive", "killed", "after"] if where == "fsync" else ["naive", "after"])


def test_merging_adds_what_is_missing_and_nothing_twice(path, tmp_path):
    other = tmp_path / "other.jsonl"
    old = {"kind": "check", "lesson": "04", "exercise": "naive", "at": NOON.timestamp()}  # PASSED, in version 0
    later, newer = Passed("05", "momentum", NOON), b'{"v": 9, "x": 1}'
    other.write_bytes(b"\n".join([json.dumps(old).encode(), line_of(GRADED), line_of(later), newer, b"{broken"]))
    journal = Journal(path)
    journal.append(PASSED)
    assert journal.merge(other) == 3
    assert set(journal.events()) == {PASSED, GRADED, later} and newer in path.read_bytes()
    assert journal.merge(other) == 0 and len(journal.events()) == 3
    assert b"broken" in other.read_bytes() and b"broken" not in path.read_bytes()
    in_memory = Journal()
    assert in_memory.merge(other) == 4 and set(in_memory.events()) == {PASSED, GRADED, later}
    with pytest.raises(FileNotFoundError):
        journal.merge(tmp_path / "none.jsonl")


# --- Where it is


def test_the_default_is_below_notebooks_and_git_ignores_it():
    path = progress.default_path()
    assert path.parts[-3:] == ("notebooks", "my", "progress.jsonl")
    root = path.parents[2]
    assert "notebooks/my/" in (root / ".gitignore").read_text().splitlines()


def test_an_installed_package_uses_the_users_data_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(progress, "__file__", str(tmp_path / "site-packages" / "recompute_lab" / "lessons" / "x.py"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert progress.default_path().parts[-2:] == ("forward-twice", "progress.jsonl")


def test_the_environment_variable_decides(tmp_path):
    assert chosen_path({}) == progress.default_path()
    assert chosen_path({"FORWARD_TWICE_PROGRESS": "off"}) is None
    assert chosen_path({"FORWARD_TWICE_PROGRESS": " OFF "}) is None
    assert chosen_path({"FORWARD_TWICE_PROGRESS": "~/mine.jsonl"}) == Path.home() / "mine.jsonl"


def test_only_a_notebook_that_somebody_opened_has_a_journal(tmp_path):
    opened = {"JPY_SESSION_NAME": "notebooks/04_dropout.ipynb"}
    assert session_path({}) is None
    assert session_path(opened) == progress.default_path()
    assert session_path(opened | {"FORWARD_TWICE_PROGRESS": "off"}) is None
    assert session_path({"FORWARD_TWICE_PROGRESS": "mine.jsonl"}) == Path("mine.jsonl")


# --- Checks


def right(answer):
    """An exercise's check."""
    if answer != 2:
        raise exercise.Wrong("it is 2")
    return "it is"


def exercise_of(module: str) -> exercise.Exercise:
    right.__module__ = module
    return exercise.Exercises().add()(right)


def test_a_right_answer_is_written_down_once(path, monkeypatch, elsewhere, capsys):
    monkeypatch.setenv(progress.VARIABLE, str(path))
    importlib.import_module("recompute_lab.lessons.streams")
    one = exercise_of("recompute_lab.lessons.streams")
    for answer in (1, ..., 2, 2):
        one(answer)
    (event,) = Journal(path).events()
    assert (event.lesson, event.exercise) == ("04", "right")
    assert datetime.now(UTC) - event.at < timedelta(minutes=5)
    assert capsys.readouterr().out.splitlines()[1:] == [
        "not attempted yet: replace each ... with your answer, then run this cell; stuck? hint.right()",
        "right: it is",
        "right: it is",
    ]


def test_nothing_is_written_where_no_learner_is(path, monkeypatch, elsewhere, tmp_path):
    monkeypatch.setattr(progress, "default_path", lambda: path)
    one = exercise_of(__name__)
    one(2)
    assert not path.exists()
    monkeypatch.setenv("JPY_SESSION_NAME", "notebooks/solutions/04_dropout.ipynb")
    one(2)
    assert not path.exists()
    monkeypatch.setenv("JPY_SESSION_NAME", "notebooks/04_dropout.ipynb")
    one.judge(2)  # what tests ask
    assert not path.exists()
    (tmp_path / "solutions").mkdir()
    with monkeypatch.context() as inside:
        inside.chdir(tmp_path / "solutions")
        one(2)
    assert not path.exists()
    one(2)
    assert len(Journal(path).events()) == 1


def test_a_journal_in_trouble_changes_nothing_in_a_cell(monkeypatch, elsewhere, capsys):
    monkeypatch.setenv(progress.VARIABLE, "somewhere")

    def broken(*_):
        raise RuntimeError("no")

    monkeypatch.setattr(progress, "Journal", broken)
    exercise_of(__name__)(2)
    assert capsys.readouterr() == ("right: it is\n", "")


def test_writing_a_check_down_imports_nothing_heavy():
    code = "import sys, recompute_lab.lessons.progress; print({'fsrs', 'torch', 'ipywidgets'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "set()"
