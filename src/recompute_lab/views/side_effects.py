"""What comes of a write that happens twice: a table of state and gradients, and where in a segment it stands."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Protocol

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from recompute_lab.instruments.gradients import Divergence
from recompute_lab.views.outcomes import brief
from recompute_lab.views.style import BLUE, GREY, INK, PALE, PALE_BLUE, PALE_VERMILLION, VERMILLION, figure, styled

# Told apart by fill and hatch, also where there is no colour: white, striped, dotted.
_RIGHT = {"facecolor": "white", "edgecolor": PALE}
_WRONG = {"facecolor": PALE_VERMILLION, "edgecolor": VERMILLION, "hatch": "////"}
_LOUD = {"facecolor": PALE_BLUE, "edgecolor": BLUE, "hatch": "..."}


class Cell(Protocol):
    """One specimen under one strategy; `written` is a number of times, or None."""

    specimen: str
    strategy: str
    written: int | None
    result: Divergence
    state_wrong: bool


@styled
def symptoms(cells: Iterable[Cell], verdicts: Mapping[str, str]) -> Figure:
    """A row for each specimen, for each strategy two boxes: how often the state was written, and the gradients.

    Rows are grouped by their verdicts ("only written", say), groups stand as their first rows come. Striped boxes are
    wrong; dotted: an error was raised, of the kind that is named. A gradient's number is its relative error
    (`Divergence.worst`). Raises ValueError where there is no cell, a cell is missing or comes twice, or a specimen has
    no verdict.
    """
    table: dict[str, dict[str, Cell]] = {}
    for cell in cells:
        row = table.setdefault(cell.specimen, {})
        if cell.strategy in row:
            raise ValueError(f"two cells for {cell.specimen}, {cell.strategy}")
        row[cell.strategy] = cell
    columns = list(next(iter(table.values()), {}))
    if not columns or any(list(row) != columns for row in table.values()):
        raise ValueError("a table has rows, all with the same columns")
    if missing := table.keys() - verdicts.keys():
        raise ValueError(f"there is no verdict on {', '.join(sorted(missing))}")
    order = list(dict.fromkeys(verdicts[name] for name in table))
    names = sorted(table, key=lambda name: order.index(verdicts[name]))  # stable: otherwise as they come
    made, axes = figure(8.6, 0.7 + 0.31 * (len(names) + len(order)))
    top, places = 0.0, {}
    for verdict, group in groupby(names, key=lambda name: verdicts[name]):
        axes.text(-0.03, top + 0.55, verdict, ha="right", va="center", fontsize=8.5, weight="bold")
        top += 1
        for name in group:
            places[name] = top
            for x, column in enumerate(columns):
                _boxes(axes, x, top, table[name][column])
            top += 1
    axes.set_yticks([y + 0.5 for y in places.values()], places, fontsize=8.5)
    axes.set_xlim(0, len(columns))
    axes.set_ylim(top, -1.1)
    for x, column in enumerate(columns):
        axes.text(x + 0.5, -0.8, column, ha="center", va="center", weight="bold", fontsize=8.5)
        axes.text(x + 0.2, -0.1, "written", ha="center", va="center", fontsize=8, color=GREY)
        axes.text(x + 0.66, -0.1, "gradients", ha="center", va="center", fontsize=8, color=GREY)
    axes.set_xticks([])
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    return made


def _boxes(axes: Axes, x: float, y: float, cell: Cell) -> None:
    times = "?" if cell.written is None else f"{cell.written}×"
    _box(axes, x + 0.04, y, 0.32, times, _WRONG if cell.state_wrong else _RIGHT)
    if cell.result.raised is not None:
        _box(axes, x + 0.38, y, 0.58, f"raises: {cell.result.outcome}", _LOUD)
    elif cell.result.missing:
        _box(axes, x + 0.38, y, 0.58, f"{len(cell.result.missing)} missing", _WRONG)
    elif cell.result.outcome == "silent":
        _box(axes, x + 0.38, y, 0.58, f"off by {brief(cell.result.worst)}", _WRONG)
    else:
        _box(axes, x + 0.38, y, 0.58, "right", _RIGHT)


def _box(axes: Axes, x: float, y: float, width: float, text: str, look: dict) -> None:
    axes.add_patch(Rectangle((x, y + 0.08), width, 0.84, linewidth=0.9, **look))
    wrong = look is not _RIGHT
    axes.text(
        x + width / 2, y + 0.52, text, ha="center", va="center", fontsize=8,
        weight="bold" if look is _WRONG else "normal",
        color=INK if wrong else GREY, bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.0} if wrong else None,
    )  # fmt: skip


@styled
def placement(table: Mapping[str, Mapping[str, int]], saved: Sequence[str], before: Mapping[str, int]) -> Figure:
    """How far each recomputation goes, and what a counter shows that stands at each of the places.

    `table[place][strategy]` is the count after one step; `saved` are the operators of the saved tensors, in order, and
    `before[place]` tells how many of them are saved before it. A recomputation ends at the last saved tensor, or it
    reaches the end of the segment where all counters count twice. Raises ValueError where there is no place, rows have
    different columns, or `before` does not fit.
    """
    strategies = list(next(iter(table.values()), {}))
    if not strategies or any(list(row) != strategies for row in table.values()):
        raise ValueError("a table has rows, all with the same columns")
    if any(not 0 <= before.get(place, -1) <= len(saved) for place in table):
        raise ValueError(f"each place stands before, between or behind {len(saved)} saved tensors")
    made, axes = figure(8.6, 1.35 + 0.52 * len(strategies))
    end = len(saved) + 1.0
    where = {place: before[place] + 0.5 for place in table}
    for number, operator in enumerate(saved, 1):
        axes.plot((number, number), (0.25, len(strategies)), color=PALE, lw=1, zorder=0)
        axes.text(
            number, 0.1, f"{number}\n{operator}", ha="center", va="bottom", fontsize=8, color=GREY, linespacing=1.1
        )
    axes.text(0.1, 0.1, "saved\ntensor", ha="right", va="bottom", fontsize=8, color=GREY, linespacing=1.1)
    for y, strategy in enumerate(strategies):
        _pass(axes, y + 0.5, 0.2, end, solid=True)
        reached = [where[place] for place in table if table[place][strategy] > 1]
        if reached:
            whole = len(reached) == len(table)
            _pass(axes, y + 0.78, 0.2, end if whole else len(saved), solid=False, stopped=not whole)
        for place, x in where.items():
            count = table[place][strategy]
            wrong = count != 1
            axes.text(
                x, y + (0.64 if wrong else 0.5), f"{count}", ha="center", va="center", fontsize=9,
                weight="bold" if wrong else "normal", zorder=5,
                bbox={"boxstyle": "square,pad=0.35" if wrong else "circle,pad=0.3", "facecolor": "white",
                      "edgecolor": VERMILLION if wrong else BLUE, "lw": 1.6},
            )  # fmt: skip
    for place, x in where.items():
        axes.text(
            x, len(strategies) + 0.22, f"counter\n{_broken(place)}", ha="center", va="top", fontsize=8, linespacing=1.1
        )
    axes.set_yticks([y + 0.6 for y in range(len(strategies))], strategies, fontsize=8.5)
    axes.set_xticks([])
    axes.set_xlim(-0.1, end + 0.2)
    axes.set_ylim(len(strategies) + 1.2, -0.6)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    made.legend(handles=_legend(), loc="outside upper left", ncols=4, fontsize=8.5, handletextpad=0.6)
    return made


_HEAD = {"va": "bottom", "fontsize": 8, "color": GREY, "linespacing": 1.1}
_FORWARD = {"color": INK, "lw": 1.4, "linestyle": "-"}
_AGAIN = {"color": VERMILLION, "lw": 1.4, "linestyle": (0, (4, 2))}
_STOP = {"color": VERMILLION, "marker": "X", "ms": 8, "linestyle": "none"}


def _pass(axes: Axes, y: float, start: float, end: float, solid: bool, stopped: bool = False) -> None:
    axes.plot((start, end), (y, y), zorder=2, **(_FORWARD if solid else _AGAIN))
    if stopped:
        axes.plot(end, y, zorder=4, **_STOP)


def _broken(place: str) -> str:
    """A place's name in two lines at most."""
    words = place.split()
    half = (len(words) + 1) // 2 if len(place) > 14 else len(words)
    return "\n".join(filter(None, (" ".join(words[:half]), " ".join(words[half:]))))


def _legend() -> list[Line2D]:
    return [
        Line2D([], [], label="forward", **_FORWARD),
        Line2D([], [], label="recomputation", **_AGAIN),
        Line2D([], [], label="early stop", **_STOP),
        Line2D([], [], label="the count: wrong in a square", marker="s", mfc="white", mec=VERMILLION, linestyle="none"),
    ]
