"""What became of a flip: loud or silent, harmless or not, under every way to checkpoint it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Protocol

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle

from recompute_lab.instruments.checkpointing import Strategy
from recompute_lab.instruments.gradients import ROUNDING, Divergence
from recompute_lab.views.style import BLUE, GREY, INK, PALE, SOFT_BLUE, VERMILLION, figure, styled

# Told apart by shade and hatch, also where there is no colour: light and dotted, white, dark and striped.
_LOUD = {"facecolor": SOFT_BLUE, "edgecolor": BLUE, "hatch": "..."}
_FINE = {"facecolor": "white", "edgecolor": PALE}
_SILENT = {"facecolor": VERMILLION, "edgecolor": "white", "hatch": "///"}
_LOOKS = dict.fromkeys(("count", "metadata", "more", "other"), _LOUD) | {"fine": _FINE, "silent": _SILENT}
_TEXT = {"ha": "center", "va": "center", "fontsize": 8}


class Flipped(Protocol):
    """What was measured: which branch flipped, and in which direction."""

    branch: str
    direction: str


def brief(error: float) -> str:
    """A relative error in one or two digits: "1.2", "0.03", "9e-7", and "0" where every bit is the same."""
    if error == 0:
        return "0"
    if error < 0.01:
        return f"{error:.0e}".replace("e-0", "e-")
    return f"{error:.1f}" if 0.1 <= error < 10 else f"{error:.2g}"


def _caption(result: Divergence) -> list[str]:
    """What a box says, line by line."""
    if result.raised is not None:
        return [result.outcome]
    lines = [f"{result.outcome} {brief(result.damage)}"]
    for word, names in (("missing", result.missing), ("extra", result.unexpected)):
        if names:
            lines.append(f"{len(names)} {word}")
    return lines


@styled
def matrix(cells: Iterable[tuple[Flipped, Strategy, Divergence]]) -> Figure:
    """A table of outcomes: a row for each flip, a column for each strategy, a box for what came of it.

    Rows and columns stand in the order in which they first come; neighbours in a row that say the same, under one
    implementation, share a box. A box without an error says how far the gradients are off (`Divergence.damage`). Raises
    ValueError where there is no cell, one comes twice or is missing, or a strategy does not checkpoint.
    """
    table: dict[tuple[str, str], dict[Strategy, Divergence]] = {}
    for flip, strategy, result in cells:
        row = table.setdefault((flip.branch, flip.direction), {})
        if strategy in row:
            raise ValueError(f"two results for {flip.branch}, {flip.direction}, under {strategy.name}")
        if strategy.use_reentrant is None:
            raise ValueError(f"a column shows a way to checkpoint; {strategy.name} is none")
        row[strategy] = result
    if not table:
        raise ValueError("no cells: there is no matrix to draw")
    columns = list(dict.fromkeys(strategy for row in table.values() for strategy in row))
    for (branch, direction), row in table.items():
        if missing := [strategy.name for strategy in columns if strategy not in row]:
            raise ValueError(f"no result for {branch}, {direction}, under {'; '.join(missing)}")
    made, axes = figure(8.4, 1.5 + 0.4 * len(table))
    for y, row in enumerate(table.values()):
        _row(axes, y, [(strategy, row[strategy]) for strategy in columns])
    _headers(axes, columns)
    _sides(axes, list(table))
    axes.set_xlim(0, len(columns))
    axes.set_ylim(len(table), -2.2)
    axes.set_xticks([])
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    made.legend(
        [Patch(**_LOUD), Patch(**_FINE | {"edgecolor": GREY}), Patch(**_SILENT)],
        [
            "an error: fewer tensors (count), more, other metadata",
            "no error, right up to rounding",
            "no error, wrong",
        ],
        loc="outside lower left",
        title="Numbers: largest relative gradient error (a missing gradient counts as 1);"
        " then gradients missing, and extra ones",
        alignment="left",
        title_fontsize=8,
        fontsize=8,
        ncols=3,
        columnspacing=1.2,
        handletextpad=0.5,
        handleheight=1.2,
        handlelength=2.4,
    )
    return made


def _row(axes: Axes, y: int, row: Sequence[tuple[Strategy, Divergence]]) -> None:
    x = 0
    for (_, caption), run in groupby(row, lambda cell: (cell[0].use_reentrant, tuple(_caption(cell[1])))):
        run = list(run)
        outcome = run[0][1].outcome
        axes.add_patch(Rectangle((x + 0.03, y + 0.05), len(run) - 0.06, 0.9, linewidth=0.8, **_LOOKS[outcome]))
        axes.text(
            x + len(run) / 2,
            y + 0.5,
            (", " if len(run) > 1 else "\n").join(caption),
            weight="bold" if outcome == "silent" else "normal",
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.6},
            linespacing=1.0,
            **_TEXT,
        )
        x += len(run)


def _headers(axes: Axes, columns: Sequence[Strategy]) -> None:
    """Three lines over the boxes: implementation, early stop, determinism check."""
    levels = (
        (-1.85, lambda s: "reentrant" if s.use_reentrant else "non-reentrant", "bold"),
        (-1.1, lambda s: f"early stop {'on' if s.early_stop else 'off'}", "normal"),
        (-0.38, lambda s: f"check:\n{s.determinism_check}", "normal"),
    )
    for depth, (y, _, weight) in enumerate(levels):
        x = 0
        for names, run in groupby(columns, lambda s, depth=depth: tuple(name(s) for _, name, _ in levels[: depth + 1])):
            width = len(list(run))
            axes.text(x + width / 2, y, names[-1], weight=weight, linespacing=1.0, **_TEXT)
            if depth < 2:
                axes.plot((x + 0.06, x + width - 0.06), (y + 0.36, y + 0.36), color=GREY, lw=0.8)
            x += width


def _sides(axes: Axes, flips: Sequence[tuple[str, str]]) -> None:
    """The direction beside each row, the branch beside its rows, a thin line between branches."""
    axes.set_yticks([y + 0.5 for y in range(len(flips))], [direction for _, direction in flips], fontsize=8)
    y = 0
    for branch, run in groupby(flips, lambda flip: flip[0]):
        height = len(list(run))
        axes.annotate(
            branch.replace(" of ", "\nof ").replace(" per ", "\nper "),
            (0, y + height / 2),
            (-84, 0),
            textcoords="offset points",
            ha="right",
            va="center",
            fontsize=8,
            weight="bold",
            annotation_clip=False,
        )
        y += height
        if y < len(flips):
            axes.axhline(y, color=GREY, lw=0.6)


@dataclass(frozen=True)
class Point:
    """One flip under one implementation: did anything raise, and how wrong are the gradients?

    `error` is the relative gradient error. Where a run is loud there are no gradients to compare: give what the same
    flip costs where nothing notices it.
    """

    label: str
    implementation: str
    loud: bool
    error: float


_LOWEST, _HIGHEST = 1e-8, 10.0
_MARKS = (
    {"marker": "o", "ms": 9, "mfc": "white", "mec": BLUE, "mew": 1.6},
    {"marker": "s", "ms": 4.5, "mfc": VERMILLION, "mec": VERMILLION},
    {"marker": "^", "ms": 7, "mfc": "white", "mec": INK, "mew": 1.2},
    {"marker": "x", "ms": 6, "mec": INK, "mew": 1.6},
)
_CORNERS = {
    (True, True): "loud and harmless: a run stopped for rounding",
    (True, False): "loud and harmful: found in time",
    (False, True): "silent and harmless: nobody has to know",
    (False, False): "silent and harmful: nobody finds out",
}


@styled
def loudness(points: Iterable[Point]) -> Figure:
    """Noticed or not (two lanes) against the relative gradient error (log scale), each point labelled.

    A lane has as many lines as its labels need, so that none covers another; where a flip has one error under several
    implementations, their marks lie in one another. Errors below 1e-8, zero too, are drawn at 1e-8, those above 10 at
    10. Raises ValueError where there are no points, more implementations than marks, or an error that is no number.
    """
    points = list(dict.fromkeys(points))
    if not points:
        raise ValueError("no points: there is nothing to draw")
    if wrong := [point.label for point in points if math.isnan(point.error) or point.error < 0]:
        raise ValueError(f"an error is a number from 0 up; that of {', '.join(wrong)} is not")
    marks = dict(zip(dict.fromkeys(point.implementation for point in points), _MARKS, strict=False))
    if unmarked := {point.implementation for point in points} - set(marks):
        raise ValueError(f"there are marks for {len(_MARKS)} implementations, and none for {', '.join(unmarked)}")
    lanes = {loud: _lines([point for point in points if point.loud is loud]) for loud in (False, True)}
    heights = {loud: max(len(lines), 2) + 1.3 for loud, lines in lanes.items()}
    made, axes = figure(8.4, 1.25 + 0.19 * sum(heights.values()))
    middle, top = heights[False], heights[False] + heights[True]
    for loud, floor in ((False, 0.0), (True, middle)):
        for number, line in enumerate(lanes[loud]):
            for group in line:
                _group(axes, group, floor + number + 0.6, marks)
        for harmless, x, side in ((True, _LOWEST, "left"), (False, _HIGHEST, "right")):
            head = floor + heights[loud] - 0.5
            axes.text(x, head, _CORNERS[loud, harmless], ha=side, va="center", fontsize=9, weight="bold")
    axes.axhline(middle, color=GREY, lw=1)
    axes.axvspan(_LOWEST / 2, ROUNDING, facecolor=PALE, alpha=0.45, zorder=0)
    axes.set_xscale("log")
    axes.set_xlim(_LOWEST / 2, _HIGHEST * 2)
    axes.set_ylim(0, top)
    axes.set_yticks((middle / 2, (middle + top) / 2), ("silent:\nnothing\nraises", "loud:\nan error"))
    axes.tick_params(axis="y", length=0)
    axes.minorticks_off()
    axes.set_xlabel("relative gradient error; shaded: no more than rounding can make")
    made.legend(
        [Line2D([], [], linestyle="none", **look) for look in marks.values()],
        list(marks),
        ncols=len(marks),
        loc="outside upper left",
        fontsize=9,
        handletextpad=0.3,
    )
    return made


def _at(point: Point) -> float:
    """Where a point stands: the decimal logarithm of its error, kept inside the axes."""
    return math.log10(min(max(point.error, _LOWEST), _HIGHEST))


def _lines(points: Sequence[Point]) -> list[list[list[Point]]]:
    """A lane's lines from the bottom up, each a list of groups: points of one label that stand close to each other."""
    groups: list[list[Point]] = []
    for point in sorted(points, key=lambda p: (p.label, _at(p))):
        if groups and groups[-1][0].label == point.label and _at(point) - _at(groups[-1][-1]) < 1:
            groups[-1].append(point)
        else:
            groups.append([point])
    lines: list[list[list[Point]]] = []
    for group in sorted(groups, key=lambda g: (_at(g[0]), g[0].label)):
        free = (line for line in lines if all(_apart(group, other) for other in line))
        line = next(free, None)
        if line is None:
            lines.append([group])
        else:
            line.append(group)
    return lines


_LETTER = 0.085  # a letter's width on the axis, in decades, with room to spare


def _span(group: Sequence[Point]) -> tuple[float, float]:
    """From where to where a group and its label reach, in decades: harmless labels stand right, the others left."""
    first, last = _at(group[0]), _at(group[-1])
    width = 0.25 + _LETTER * len(group[0].label)
    return (first - 0.2, last + width) if group[0].error <= ROUNDING else (first - width, last + 0.2)


def _apart(one: Sequence[Point], other: Sequence[Point]) -> bool:
    (a, b), (c, d) = _span(one), _span(other)
    return b < c or d < a


def _group(axes: Axes, group: Sequence[Point], y: float, marks: dict) -> None:
    left, right = 10 ** _at(group[0]), 10 ** _at(group[-1])
    if left < right:
        axes.plot((left, right), (y, y), color=GREY, lw=0.8, zorder=1)
    for order, (implementation, look) in enumerate(marks.items()):  # the larger marks below the smaller ones
        at = [10 ** _at(point) for point in group if point.implementation == implementation]
        axes.plot(at, [y] * len(at), linestyle="none", zorder=2 + order, **look)
    harmless = group[0].error <= ROUNDING
    axes.annotate(
        group[0].label,
        (right if harmless else left, y),
        (9 if harmless else -9, 0),
        textcoords="offset points",
        ha="left" if harmless else "right",
        va="center",
        fontsize=8,
    )
