"""The field guide's figures: what came of each fault, and the way from a symptom to its root cause."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import wrap

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Rectangle

from recompute_lab.views.style import BLUE, GREY, INK, PALE, PALE_BLUE, PALE_VERMILLION, VERMILLION, figure, styled

_LOOKS = {
    "right": {"facecolor": "white", "edgecolor": PALE},
    "silent": {"facecolor": PALE_VERMILLION, "edgecolor": VERMILLION, "hatch": "////"},
    "loud": {"facecolor": PALE_BLUE, "edgecolor": BLUE, "hatch": "..."},
}


@dataclass(frozen=True)
class Row:
    """One fault: `cells` are (look, words) for each implementation; a look is "right", "silent" or "loud"."""

    name: str
    cause: int
    cells: tuple[tuple[str, str], ...]


@styled
def outcomes(rows: Sequence[Row], causes: dict[int, str], columns: Sequence[str]) -> Figure:
    """A row for each fault, grouped by root cause; a box for each implementation. Striped: wrong without an error;
    dotted: an error. Raises ValueError where there is no row, or one has not as many cells as there are columns.
    """
    if not rows or any(len(row.cells) != len(columns) for row in rows):
        raise ValueError(f"each row has {len(columns)} cells, and there is a row at least")
    numbers = sorted({row.cause for row in rows})
    made, axes = figure(8.6, 0.55 + 0.3 * (len(rows) + len(numbers)))
    y, ticks = 0.0, {}
    for number in numbers:
        axes.text(-0.02, y + 0.55, f"{number}  {causes[number]}", fontsize=8.5, weight="bold", ha="right", va="center")
        axes.plot((-1.35, len(columns)), (y + 0.02, y + 0.02), color=PALE, lw=0.8, clip_on=False)
        y += 1
        for row in (row for row in rows if row.cause == number):
            ticks[y + 0.5] = row.name
            for x, (look, words) in enumerate(row.cells):
                _cell(axes, x, y, look, words)
            y += 1
    for x, column in enumerate(columns):
        axes.text(x + 0.5, -0.3, column, ha="center", va="center", weight="bold", fontsize=8.5)
    axes.set_yticks(list(ticks), list(ticks.values()), fontsize=8.5)
    axes.set_xlim(0, len(columns))
    axes.set_ylim(y, -0.7)
    axes.set_xticks([])
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    return made


def _cell(axes: Axes, x: float, y: float, look: str, words: str) -> None:
    axes.add_patch(Rectangle((x + 0.03, y + 0.08), 0.94, 0.84, linewidth=0.9, **_LOOKS[look]))
    plain = look == "right"
    axes.text(
        x + 0.5, y + 0.52, words, ha="center", va="center", fontsize=8, color=GREY if plain else INK,
        weight="bold" if look == "silent" else "normal",
        bbox=None if plain else {"facecolor": "white", "edgecolor": "none", "pad": 1.0},
    )  # fmt: skip


@dataclass(frozen=True)
class Step:
    """One line of the chart: who is wrong, what is asked, and what a yes means. An empty question: all that is left."""

    who: str
    question: str
    cause: int
    repair: str


_WHO, _ASK, _FOUND = (-0.9, 1.6), (2.0, 5.3), (5.9, 10.7)  # from, to, in units of the chart's width
_HIGH = 0.78  # of a box; lines are 1 apart


@styled
def chart(steps: Sequence[Step], causes: dict[int, str], seen: dict[str, str]) -> Figure:
    """Who is wrong, on the left, and what one sees; the questions, from top to bottom; on the right what a yes means.

    `seen` has a few words for each `who`. Raises ValueError where there is no step.
    """
    if not steps:
        raise ValueError("a chart has steps")
    groups = list(dict.fromkeys(step.who for step in steps))
    made, axes = figure(9.4, 0.55 + 0.62 * len(steps) + 0.12 * len(groups))
    y = 0.0
    for who in groups:
        members = [step for step in steps if step.who == who]
        _box(axes, _WHO, y, y + len(members) - 1 + _HIGH, "", 1)
        words = "\n".join(line for part in seen.get(who, "").split("\n") for line in wrap(part, 26))
        place, lines = sum(_WHO) / 2, words.count("\n") + bool(words)
        center = y + (len(members) - 1 + _HIGH) / 2
        axes.text(place, center - 0.13 * lines - 0.05, who, ha="center", va="center", fontsize=8.5, weight="bold")
        axes.text(place, center + 0.14, words, ha="center", va="center", fontsize=8, linespacing=1.2)
        for number, step in enumerate(members):
            middle = y + number + _HIGH / 2
            if step.question:
                _box(axes, _ASK, y + number, y + number + _HIGH, step.question, 40)
                _arrow(axes, (_ASK[1], middle), (_FOUND[0], middle), "yes")
            else:
                _arrow(axes, (_ASK[0] + 1.6, middle), (_FOUND[0], middle), "")
            if number == 0:
                _arrow(axes, (_WHO[1], middle), (_ASK[0], middle), "")
            else:
                end = y + number if step.question else middle
                _arrow(axes, (_ASK[0] + 1.6, y + number - 1 + _HIGH), (_ASK[0] + 1.6, end), "no")
            _found(axes, y + number, step, causes)
        y += len(members) + 0.2
    axes.text(_WHO[0], -0.35, "who is wrong, and what you see", fontsize=8, color=GREY, va="center")
    axes.text(_ASK[0], -0.35, "ask", fontsize=8, color=GREY, va="center")
    axes.text(_FOUND[0], -0.35, "root cause, and what mends", fontsize=8, color=GREY, va="center")
    axes.set_xlim(_WHO[0] - 0.05, _FOUND[1] + 0.05)
    axes.set_ylim(y - 0.1, -0.6)
    axes.axis("off")
    return made


def _box(axes: Axes, span: tuple[float, float], top: float, bottom: float, words: str, width: int, **text) -> None:
    axes.add_patch(
        FancyBboxPatch(
            (span[0] + 0.06, top + 0.06), span[1] - span[0] - 0.12, bottom - top - 0.12,
            boxstyle="round,pad=0.06", facecolor="white", edgecolor=GREY, linewidth=1.0,
        )
    )  # fmt: skip
    lines = "\n".join(line for part in words.split("\n") for line in wrap(part, width))
    axes.text(
        (span[0] + span[1]) / 2, (top + bottom) / 2, lines, ha="center", va="center", fontsize=8.5, linespacing=1.15,
        **text,
    )  # fmt: skip


def _found(axes: Axes, top: float, step: Step, causes: dict[int, str]) -> None:
    axes.add_patch(
        FancyBboxPatch(
            (_FOUND[0] + 0.06, top + 0.06), _FOUND[1] - _FOUND[0] - 0.12, _HIGH - 0.12,
            boxstyle="round,pad=0.06", facecolor=PALE_BLUE, edgecolor=BLUE, linewidth=1.2,
        )
    )  # fmt: skip
    axes.text(
        _FOUND[0] + 0.28,
        top + _HIGH / 2,
        f"{step.cause}",
        ha="center",
        va="center",
        fontsize=13,
        weight="bold",
        color=BLUE,
    )
    axes.text(_FOUND[0] + 0.58, top + 0.22, causes[step.cause], fontsize=8.5, va="center", weight="bold")
    axes.text(_FOUND[0] + 0.58, top + 0.57, step.repair, fontsize=8, va="center", color=INK)


def _arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float], word: str) -> None:
    axes.annotate(
        "", end, start, arrowprops={"arrowstyle": "-|>", "color": GREY, "lw": 1.2, "shrinkA": 0, "shrinkB": 0}
    )
    if word:
        down = start[0] == end[0]
        place = (start[0] + 0.1, (start[1] + end[1]) / 2) if down else ((start[0] + end[0]) / 2, start[1] - 0.14)
        axes.text(*place, word, fontsize=7.5, color=GREY, ha="left" if down else "center", va="center")
