"""What a search sees and what it walks past; and how findings become fewer, question by question."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure

from recompute_lab.views.style import BLUE, GREY, INK, PALE, SKY, VERMILLION, figure, styled

_STEP = 0.25  # inches that a row takes


@dataclass(frozen=True)
class Row:
    """One site: `cells` has for each column whether it is seen there, and a few words, or none."""

    name: str
    place: str
    cells: tuple[tuple[bool, str], ...]


@styled
def sightings(rows: Sequence[Row], columns: Sequence[str]) -> Figure:
    """A row for each site: a filled circle where a column sees it, a cross where it does not, words beside the mark.

    Below, how many of all each column sees. Raises ValueError where there is no row, or one has not as many cells as
    there are columns.
    """
    if not rows or any(len(row.cells) != len(columns) for row in rows):
        raise ValueError(f"each row has {len(columns)} cells, and there is a row at least")
    wide = any(words for row in rows for _, words in row.cells)
    width = 2.0 if wide else 0.9
    made, axes = figure(4.3 + width * len(columns), 0.7 + _STEP * (len(rows) + 1))
    for y, row in enumerate(rows):
        axes.axhline(y, color=PALE, lw=0.8, zorder=0)
        for x, (seen, words) in enumerate(row.cells):
            look = (
                dict(marker="o", color=BLUE, ms=8)
                if seen
                else dict(marker="x", color=VERMILLION, ms=7, mew=2.0)
            )  # fmt: skip
            axes.plot(x, y, zorder=2, **look)
            if words:
                axes.annotate(
                    words, (x, y), (9, 0), textcoords="offset points", va="center", fontsize=8.5,
                    color=INK if seen else GREY, bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.0},
                )  # fmt: skip
        axes.text(-0.53, y, row.place, ha="right", va="center", fontsize=8.5, color=GREY, family="monospace")
    for x, column in enumerate(columns):
        count = sum(row.cells[x][0] for row in rows)
        side = "left" if wide else "center"
        shift = -0.06 if wide else 0
        axes.text(x + shift, -0.95, column, ha=side, va="center", weight="bold", fontsize=9.5)
        axes.text(
            x + shift, len(rows) + 0.05, f"{count} of {len(rows)}", ha=side, va="center", weight="bold", fontsize=9.5
        )
    axes.set_yticks(range(len(rows)), [f"{row.name}{' ' * 30}" for row in rows], fontsize=9)
    axes.set_xlim(-0.5, len(columns) + (0.05 if wide else -0.4))
    axes.set_ylim(len(rows) + 0.5, -1.4)
    axes.set_xticks([])
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    return made


@dataclass(frozen=True)
class Stage:
    """One question: how many findings are left after it, and what became of those that are not."""

    question: str
    left: int
    aside: str = ""


@styled
def narrowing(stages: Sequence[Stage]) -> Figure:
    """A bar for each question, as long as there are findings left; to its right the pale rest, and where it goes.

    Raises ValueError where there is no stage, or more are left after one than after the one before.
    """
    if not stages or any(b.left > a.left for a, b in zip(stages, stages[1:], strict=False)):
        raise ValueError("there is a stage at least, and no question adds findings")
    most = stages[0].left
    made, axes = figure(9.2, 0.35 + 0.78 * len(stages))
    for y, stage in enumerate(stages):
        before = stages[y - 1].left if y else stage.left
        axes.barh(y, stage.left, height=0.46, color=SKY, edgecolor=BLUE, lw=1.0)
        if before > stage.left:
            axes.barh(
                y, before - stage.left, left=stage.left, height=0.46, facecolor="white", edgecolor=GREY, hatch="////",
                lw=0.8,
            )  # fmt: skip
        axes.text(stage.left / 2, y, f"{stage.left}", ha="center", va="center", weight="bold", fontsize=11)
        axes.text(0, y - 0.4, stage.question, ha="left", va="center", fontsize=9.5)
        if stage.aside:
            axes.text(before + 0.3, y, stage.aside, ha="left", va="center", fontsize=8.5, linespacing=1.25)
    axes.set_xlim(0, most * 1.7)
    axes.set_ylim(len(stages) - 0.6, -0.7)
    axes.axis("off")
    return made
