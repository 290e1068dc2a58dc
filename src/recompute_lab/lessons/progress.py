"""The learner's own journal: which checks were passed and how cards were graded, one line of JSON for each.

Lines are only ever added. So nothing that was written is lost: not by a crash in the middle of a line, which costs
that line, nor by two kernels that write at once. The file stays on the learner's machine.
"""

from __future__ import annotations

import errno
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

VERSION = 1  # of the lines that are written; see _READERS for those that are read
VARIABLE = "FORWARD_TWICE_PROGRESS"
GRADES = ("Again", "Hard", "Good", "Easy")
NOT_KEPT = (
    "No progress is kept in this session. It is kept where JupyterLab has opened the notebook, and wherever "
    f"{VARIABLE} names a file."
)


def utc_now() -> datetime:
    return datetime.now(UTC)


# --- Events


@dataclass(frozen=True)
class Passed:
    """The right answer to an exercise: the lesson's number ("04"), the exercise's name, when (UTC)."""

    lesson: str
    exercise: str
    at: datetime


@dataclass(frozen=True)
class Graded:
    """A card's grade, one of GRADES, and when (UTC); how many of the rubric's points were said, and in how long."""

    card: str
    grade: str
    at: datetime
    said: int = 0
    of: int = 0
    seconds: int = 0


Event = Passed | Graded


class Newer(ValueError):
    """A line of a version that is not known here."""


def line_of(event: Event) -> bytes:
    """The event as it is written, without the end of the line."""
    at = event.at.astimezone(UTC).isoformat()
    if isinstance(event, Passed):
        fields = {"kind": "check", "lesson": event.lesson, "exercise": event.exercise, "at": at}
    else:
        counts = {"said": event.said, "of": event.of, "seconds": event.seconds}
        fields = {"kind": "card", "card": event.card, "grade": event.grade, "at": at, **counts}
    return json.dumps({"v": VERSION, **fields}, ensure_ascii=False).encode()


def event_of(line: bytes) -> Event:
    """The event of a line of any version up to VERSION.

    Raises ValueError for what is none, and its subclass `Newer` for a line of a later version.
    """
    fields = json.loads(line)
    if not isinstance(fields, dict):
        raise ValueError("not an object")
    version = fields.get("v", 0)
    if not isinstance(version, int) or isinstance(version, bool):
        raise ValueError("no version")
    if version > VERSION:
        raise Newer(f"version {version}")
    if version not in _READERS:
        raise ValueError("no such version")
    try:
        return _event(_READERS[version](fields))
    except (KeyError, TypeError, AttributeError, OverflowError, OSError) as error:
        raise ValueError(f"not an event: {error!r}") from None


def _event(fields: dict) -> Event:
    at = datetime.fromisoformat(fields["at"])
    if at.tzinfo is None:
        raise ValueError("a time without its zone")
    at = at.astimezone(UTC)
    if not 1970 <= at.year < 9000:  # where a time zone or an interval would lead out of the calendar
        raise ValueError("no such time")
    if fields["kind"] == "check":
        return Passed(_name(fields["lesson"]), _name(fields["exercise"]), at)
    if fields["kind"] == "card" and fields["grade"] in GRADES:
        counts = (int(fields.get(name, 0)) for name in ("said", "of", "seconds"))
        return Graded(_name(fields["card"]), fields["grade"], at, *counts)
    raise ValueError("no such kind of event, or no such grade")


def _name(value) -> str:
    if not isinstance(value, str):
        raise ValueError("a name is a text")
    return value


def _from_0(fields: dict) -> dict:
    """Version 0, whose lines have no "v": times in seconds since 1970, grades as FSRS numbers them, from 1."""
    fields = {**fields, "at": datetime.fromtimestamp(fields["at"], UTC).isoformat()}
    if "grade" in fields:
        fields["grade"] = dict(enumerate(GRADES, 1))[fields["grade"]]
    return fields


_READERS: dict[int, Callable[[dict], dict]] = {0: _from_0, 1: lambda fields: fields}


# --- The journal


class Journal:
    """The events in a file, and those of this session that could not be written there; in memory alone for None."""

    def __init__(self, path: str | Path | None = None):
        self.path = None if path is None else Path(path)
        self.trouble = ""  # one sentence, where the file cannot be written
        self._unreadable = ""  # and where it cannot be read
        self._unwritten: list[Event] = []

    def append(self, *events: Event) -> None:
        """Keeps the events. Where the file cannot be written they are kept in memory, and `trouble` says so.

        What is kept in memory goes into the file as soon as that can be written.
        """
        self._unwritten += events
        if self.path is None or not self._unwritten:
            return
        try:
            _append(self.path, [line_of(event) for event in self._unwritten])
        except OSError as error:
            self.trouble = (
                f"{_shown(self.path)} cannot be written ({error.strerror or error}): "
                "progress is kept until this session ends, and not longer."
            )
        else:
            self._unwritten, self.trouble = [], ""

    def events(self) -> list[Event]:
        """All events that can be read, by time; what another kernel has written in the meantime is among them."""
        return self._read()[0]

    def notes(self) -> list[str]:
        """A sentence for each thing that is wrong with the file; none where all is well."""
        _, broken, newer = self._read()
        trouble = self.trouble or self._unreadable or self._refused()
        said = [trouble] if trouble else []
        if broken:
            lines, were = ("line", "was") if broken == 1 else ("lines", "were")
            said.append(f"{broken} {lines} of {_shown(self.path)} {were} skipped as unreadable; nothing was deleted.")
        if newer:
            lines, were, come = ("line", "was", "comes") if newer == 1 else ("lines", "were", "come")
            said.append(
                f"{newer} {lines} of {_shown(self.path)} {come} from a later version of the course and {were} skipped; "
                "nothing was deleted."
            )
        return said

    def _refused(self) -> str:
        """A sentence where the file could not be written, found out without writing."""
        if self.path is None:
            return ""
        there = next(path for path in (self.path, *self.path.parents) if os.path.exists(path))
        if os.access(there, os.W_OK):
            return ""
        return f"{_shown(self.path)} cannot be written: what you pass and grade is not kept."

    def _read(self) -> tuple[list[Event], int, int]:
        events, broken, newer = [], 0, 0
        for line in self._lines():
            try:
                events.append(event_of(line))
            except Newer:
                newer += 1
            except (ValueError, RecursionError):
                broken += 1
        # Once each: a disk that filled up in the middle of several lines has some of them, and is given all again.
        once = dict.fromkeys([*events, *self._unwritten])
        return sorted(once, key=lambda event: event.at), broken, newer

    def _lines(self) -> list[bytes]:
        if self.path is None:
            return []
        self._unreadable = ""
        try:
            return _lines(self.path)
        except FileNotFoundError:
            return []
        except OSError as error:
            self._unreadable = f"{_shown(self.path)} cannot be read ({error.strerror or error})."
            return []

    def export(self, path: str | Path) -> int:
        """Copies all that can be read, and what a later version wrote, into a new file; how many lines.

        Raises FileExistsError where something is there already, and OSError, naming the new file, where it cannot be
        written: then there is none, not half of one.
        """
        lines = [*self._kept(self._lines()), *map(line_of, self._unwritten)]
        try:
            file = open(path, "xb")
        except FileExistsError:
            raise FileExistsError(f"{_shown(Path(path))} is there already: choose another name") from None
        try:
            with file:
                file.write(b"".join(line + b"\n" for line in lines))
        except OSError as error:
            os.unlink(path)
            raise OSError(error.errno, error.strerror, str(path)) from None
        return len(lines)

    def merge(self, path: str | Path) -> int:
        """Adds what another journal has and this one has not; how many lines. The other file is only read.

        Raises OSError where that cannot be read, or this one not be written.
        """
        had = {_content(line) for line in self._lines()} | {_content(line_of(event)) for event in self._unwritten}
        fresh: dict[str, bytes] = {}
        for line in self._kept(_lines(Path(path))):
            if (content := _content(line)) not in had:
                fresh.setdefault(content, line)
        if fresh and self.path is None:
            self._unwritten += [event_of(line) for line in fresh.values() if not _is_newer(line)]
        elif fresh:
            _append(self.path, list(fresh.values()))
        return len(fresh)

    @staticmethod
    def _kept(lines: Iterable[bytes]) -> list[bytes]:
        return [line for line in lines if _content(line)]


def _lines(path: Path) -> list[bytes]:
    """The lines that are not empty; without the zeros that a power failure leaves where nothing had been written."""
    return [line for line in (line.strip(b"\0") for line in path.read_bytes().split(b"\n")) if line.strip()]


def _is_newer(line: bytes) -> bool:
    try:
        event_of(line)
    except Newer:
        return True
    except (ValueError, RecursionError):
        pass
    return False


def _content(line: bytes) -> str:
    """What a line says, the same however it is written; "" where it cannot be read."""
    try:
        return line_of(event_of(line)).decode()
    except Newer:
        return json.dumps(json.loads(line), sort_keys=True)
    except (ValueError, RecursionError):
        return ""


def _append(path: Path, lines: list[bytes]) -> None:
    """Adds whole lines at the file's end, in one write, and waits until they are on the disk. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = b"".join(line + b"\n" for line in lines)
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        while True:
            size = os.fstat(descriptor).st_size
            # Somebody was killed in the middle of a line: it must not swallow this one.
            lead = b"" if size == 0 or os.pread(descriptor, 1, size - 1) == b"\n" else b"\n"
            if os.write(descriptor, lead + text) < len(lead + text):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            start = os.lseek(descriptor, 0, os.SEEK_CUR) - len(text)
            # ... nor when that happened between the look and the write, by another process.
            if start == 0 or os.pread(descriptor, 1, start - 1) == b"\n":
                break
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _shown(path: Path) -> str:
    """A path as a learner knows it: from the home folder, where it is below."""
    try:
        return str(Path("~") / path.resolve().relative_to(Path.home().resolve()))
    except (ValueError, RuntimeError, OSError):
        return str(path)


# --- Where it is


def default_path() -> Path:
    """notebooks/my/progress.jsonl of the repository that the package comes from, else in the user's data folder.

    Raises RuntimeError where no home folder is known.
    """
    repository = Path(__file__).resolve().parents[3]
    if (repository / "pyproject.toml").is_file() and (repository / "notebooks" / "source").is_dir():
        return repository / "notebooks" / "my" / "progress.jsonl"
    from platformdirs import user_data_path

    folder = user_data_path("forward-twice", appauthor=False)
    if not folder.is_absolute():  # an older platformdirs leaves the ~ standing: a folder of that name would be made
        raise RuntimeError("no home folder is known")
    return folder / "progress.jsonl"


def chosen_path(environment: Mapping[str, str] = os.environ) -> Path | None:
    """What the environment variable says: a path, None for "off"; the default path where it is not set.

    None, too, where the path begins in a home folder and none is known.
    """
    said = environment.get(VARIABLE, "").strip()
    if said.lower() == "off":
        return None
    try:
        return Path(said).expanduser() if said else default_path()
    except RuntimeError:
        return None


def session_path(environment: Mapping[str, str] = os.environ) -> Path | None:
    """The journal of a notebook's session: None unless a learner has opened it.

    jupyter_server tells a kernel its notebook's path in JPY_SESSION_NAME; what only runs a notebook (nbclient, nbval)
    does not. The environment variable decides for everybody else.
    """
    if environment.get(VARIABLE, "").strip() or environment.get("JPY_SESSION_NAME"):
        return chosen_path(environment)
    return None


def session_journal() -> Journal:
    """The journal of this notebook's session; in memory where none is kept."""
    return Journal(session_path())


# --- Checks


def lesson_of(module: str) -> str:
    """The number of a module's lesson; else the module's name.

    Its docstring begins with it ("Lesson 04: ..."), or that of the package that it is in.
    """
    for name in (module, module.rpartition(".")[0]):
        if found := re.match(r"Lesson (\d\d)\b", getattr(sys.modules.get(name), "__doc__", None) or ""):
            return found[1]
    return module.rpartition(".")[2]


def note_passed(module: str, exercise: str, clock: Callable[[], datetime] = utc_now) -> None:
    """Writes down, once, that an exercise's check said right; nothing in a notebook with the solutions.

    Called in the middle of a learner's cell, so it prints nothing and raises nothing.
    """
    try:
        opened = Path(os.environ.get("JPY_SESSION_NAME", "")).parent.name
        if "solutions" in (opened, Path.cwd().name) or not (path := session_path()):
            return
        lesson, journal = lesson_of(module), Journal(path)
        if not any(isinstance(e, Passed) and (e.lesson, e.exercise) == (lesson, exercise) for e in journal.events()):
            journal.append(Passed(lesson, exercise, clock()))
    except Exception:
        pass  # a lesson goes on without its journal
