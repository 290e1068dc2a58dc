"""Interview cards: questions with a rubric, read from a file, and printed as Markdown.

The cards stand in interview_cards.toml, next to this module. A card's rubric has three parts: what a weak answer says
or leaves out, the points of a good one, and those of a senior one. A point that states a fact says where it is shown.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from urllib.parse import quote

LEVELS = ("screen", "onsite", "staff")
_FILE = "interview_cards.toml"
_NOTEBOOK = r"\d\d_\w+\.ipynb"
_KEBAB = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_LESSON = re.compile(rf"({_NOTEBOOK})#(\S.*)")
_SHOWN_BY = re.compile(rf"tests/[\w/]+\.py::\w+(\[.+\])?|{_NOTEBOOK}: .*\S.*", re.DOTALL)


@dataclass(frozen=True)
class Point:
    """One thing that an answer says: a fact, with the test or the notebook that shows it, or advice, a judgement."""

    says: str
    shown_by: str = ""
    advice: bool = False


@dataclass(frozen=True)
class Card:
    """A question and its rubric. `minutes` is the time for an answer; `lesson` is "NN_name.ipynb#Heading"."""

    id: str
    topic: str
    level: str
    minutes: int
    question: str
    weak: tuple[str, ...]
    good: tuple[Point, ...]
    senior: tuple[Point, ...]
    follow_ups: tuple[str, ...]
    lesson: str

    @property
    def notebook(self) -> str:
        """The notebook to read: "04_dropout.ipynb"."""
        return self.lesson.partition("#")[0]

    @property
    def heading(self) -> str:
        """The heading to read there."""
        return self.lesson.partition("#")[2]


@dataclass(frozen=True)
class Deck:
    """All cards, in the order of their file, and the titles of their topics by name."""

    topics: Mapping[str, str]
    cards: tuple[Card, ...]

    def choose(self, topic: str = "", level: str = "", minutes: int | None = None) -> tuple[Card, ...]:
        """The cards of a topic, of a level, and of `minutes` at most; "" and None leave that open.

        Raises ValueError, naming the choices, for a topic or level that is none.
        """
        if topic and topic not in self.topics:
            raise ValueError(f"there is no topic {topic!r}; there are: {', '.join(self.topics)}")
        if level and level not in LEVELS:
            raise ValueError(f"there is no level {level!r}; there are: {', '.join(LEVELS)}")
        return tuple(
            card
            for card in self.cards
            if topic in ("", card.topic) and level in ("", card.level) and (minutes is None or card.minutes <= minutes)
        )


def load(path: str | Path | None = None) -> Deck:
    """The deck in `path`, by default the course's own.

    Raises ValueError, naming the file, the card and the field, where the file is not as a deck must be.
    """
    source = Path(path) if path is not None else resources.files(__package__) / _FILE
    try:
        data = tomllib.loads(source.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"{source.name}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise ValueError(f"{source.name}: is not text in UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{source.name}: is not TOML: {error}") from None
    try:
        return _deck(data)
    except ValueError as error:
        raise ValueError(f"{source.name}: {error}") from None


def _deck(data: Mapping) -> Deck:
    _only(data, {"topics", "card"}, "the file")
    topics, entries = data.get("topics", {}), data.get("card", [])
    if not isinstance(topics, dict) or not topics:
        raise ValueError('[topics] must name at least one topic: NAME = "Title"')
    for name, title in topics.items():
        _text(title, f"[topics], {name}")
    if not isinstance(entries, list) or not entries:
        raise ValueError("there is no card: each begins with [[card]]")
    cards, seen = [], set()
    for number, entry in enumerate(entries, 1):
        one = card_of(entry, topics, f"card {number}")
        if one.id in seen:
            raise ValueError(f"card {number}, id: {one.id!r} is another card's already")
        seen.add(one.id)
        cards.append(one)
    return Deck(topics, tuple(cards))


def card_of(entry: Mapping, topics: Iterable[str], called: str = "the card") -> Card:
    """The card that `entry` describes, by the names of the fields of `Card`; points are dicts.

    `called` is what a message calls a card that has no id. Raises ValueError, naming the card and the field.
    """
    if not isinstance(entry, Mapping):
        raise ValueError(f"{called} must be a table with fields, not {type(entry).__name__}")
    name = entry.get("id")
    if isinstance(name, str) and name:
        called = f"card {name!r}"
    _only(entry, set(Card.__dataclass_fields__), called)
    missing = [field for field in Card.__dataclass_fields__ if field not in entry]
    if missing:
        raise ValueError(f"{called}, {missing[0]}: is missing")
    _text(name, f"{called}, id")
    if not _KEBAB.fullmatch(name):
        raise ValueError(f"{called}, id: small letters, digits and single hyphens only, as in lost-mask")
    for field, choices in (("topic", tuple(topics)), ("level", LEVELS)):
        if entry[field] not in choices:
            raise ValueError(f"{called}, {field}: {entry[field]!r} is none of {', '.join(choices)}")
    minutes = entry["minutes"]
    if not isinstance(minutes, int) or isinstance(minutes, bool) or not 1 <= minutes <= 60:
        raise ValueError(f"{called}, minutes: a whole number from 1 to 60, not {minutes!r}")
    question, lesson = (_text(entry[field], f"{called}, {field}") for field in ("question", "lesson"))
    if not _LESSON.fullmatch(lesson):
        raise ValueError(f'{called}, lesson: "NN_name.ipynb#Heading of a section", not {lesson!r}')
    weak, follow_ups = (_texts(entry[field], f"{called}, {field}") for field in ("weak", "follow_ups"))
    good, senior = (_points(entry[field], f"{called}, {field}") for field in ("good", "senior"))
    return Card(name, entry["topic"], entry["level"], minutes, question, weak, good, senior, follow_ups, lesson)


def _only(table: Mapping, fields: set[str], where: str) -> None:
    for unknown in table.keys() - fields:
        raise ValueError(f"{where}, {unknown}: there is no such field; there are: {', '.join(sorted(fields))}")


def _text(value, where: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{where}: a text that is not empty, not {value!r}")
    return value


def _texts(value, where: str) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not value:
        raise ValueError(f"{where}: a list of one text or more, not {value!r}")
    return tuple(_text(one, f"{where}, number {number}") for number, one in enumerate(value, 1))


def _points(value, where: str) -> tuple[Point, ...]:
    if not isinstance(value, list | tuple) or not value:
        raise ValueError(f"{where}: a list of one point or more, not {value!r}")
    return tuple(_point(one, f"{where}, number {number}") for number, one in enumerate(value, 1))


def _point(value, where: str) -> Point:
    if not isinstance(value, Mapping):
        raise ValueError(
            f'{where}: a point is {{ says = "...", shown_by = "..." }} or {{ says = "...", advice = true }}'
        )
    _only(value, set(Point.__dataclass_fields__), where)
    says = _text(value.get("says"), f"{where}, says")
    if ("shown_by" in value) == ("advice" in value):
        raise ValueError(f"{where}: either shown_by, where it is a fact, or advice = true, where it is a judgement")
    if "advice" in value:
        if value["advice"] is not True:
            raise ValueError(f"{where}, advice: true, or left out")
        return Point(says, advice=True)
    shown_by = _text(value["shown_by"], f"{where}, shown_by")
    if not _SHOWN_BY.fullmatch(shown_by):
        raise ValueError(
            f'{where}, shown_by: "tests/test_x.py::test_name" or "NN_name.ipynb: what it prints", not {shown_by!r}'
        )
    return Point(says, shown_by)


# --- The print


def markdown(cards: Iterable[Card], topics: Mapping[str, str] | None = None) -> str:
    """The cards as Markdown to read and to print, by topic: question, rubric, follow-ups, what to read.

    Links are relative to the folder of the notebooks. `topics` gives the titles; without it, a topic's name is one.
    """
    by_topic: dict[str, list[Card]] = {}
    for card in cards:
        by_topic.setdefault(card.topic, []).append(card)
    lines = ["# Interview cards"]
    for topic, group in by_topic.items():
        lines += ["", f"## {plain((topics or {}).get(topic, topic))}"]
        for card in group:
            lines += ["", *_printed(card)]
    return "\n".join(lines) + "\n"


def _printed(card: Card) -> list[str]:
    minutes = "1 minute" if card.minutes == 1 else f"{card.minutes} minutes"
    return [
        f"### {plain(card.question)}",
        "",
        f"*{card.level}, {minutes}; `{card.id}`*",
        "",
        "**A weak answer says, or leaves out:**",
        "",
        *(f"- {plain(said)}" for said in card.weak),
        "",
        "**A good answer:**",
        "",
        *map(_printed_point, card.good),
        "",
        "**A senior answer, besides:**",
        "",
        *map(_printed_point, card.senior),
        "",
        "**Follow-ups:**",
        "",
        *(f"- {plain(asked)}" for asked in card.follow_ups),
        "",
        f"Read: [{plain(card.notebook)}, {plain(card.heading)}]({card.notebook}#{anchor(card.heading)})",
    ]


def _printed_point(point: Point) -> str:
    if point.advice:
        return f"- [ ] {plain(point.says)} (a judgement)"
    file, _, name = point.shown_by.partition("::")
    if name:
        return f"- [ ] {plain(point.says)} ([{plain(name)}](../{file}))"
    file = point.shown_by.partition(":")[0]
    return f"- [ ] {plain(point.says)} ([{plain(file)}]({file}))"


def anchor(heading: str) -> str:
    """The part of a link to a heading of a notebook, as JupyterLab names it: blanks become hyphens."""
    return quote(heading.replace("`", "").replace(" ", "-"), safe="-._~!'*,;:@/?=+&")


def plain(text: str) -> str:
    """Text in which Markdown finds nothing but code between backticks; on one line."""
    parts = re.split(r"(`[^`]+`)", " ".join(text.split()))
    return "".join(
        part if part.startswith("`") and len(part) > 2 else _escaped(part, n == 0) for n, part in enumerate(parts)
    )


def _escaped(text: str, leads: bool) -> str:
    text = re.sub(r"[\\*\[\]<>$~`|&]|(?<![^\W_])_|_(?![^\W_])", lambda found: "\\" + found[0], text)
    return re.sub(r"^([#+-]|\d+(?=[.)]))", _defused, text) if leads else text


def _defused(found: re.Match) -> str:
    """What would begin a heading or a list, so that it does not; digits cannot be escaped, their full stop can."""
    return "\\" + found[0] if not found[0].isdigit() else found[0] + "\\"
