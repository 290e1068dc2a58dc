"""What one could have watched: the cap's counters over a training run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from recompute_lab.views.style import BLUE, GREY, INK, VERMILLION, figure, styled


class Counted(Protocol):
    """One step: how many vectors the cap shortened, and how many came near it."""

    number: int
    capped: int
    near: int


@styled
def counters(runs: Mapping[str, tuple[Sequence[Counted], bool]], last: int = 60) -> Figure:
    """One panel per run: vectors near the cap and vectors capped, by step; a cross where the run died.

    `runs` maps a title to the steps and whether the last one died. The `last` steps are drawn.
    """
    made, axes = figure(8.2, 2.9, ncols=len(runs), sharey=True, squeeze=False)
    begin, end = (pick(s.number for steps, _ in runs.values() for s in steps[-last:]) for pick in (min, max))
    highest = max(s.near for steps, _ in runs.values() for s in steps[-last:])
    for panel, (title, (steps, died)) in zip(axes[0], runs.items(), strict=True):
        steps = steps[-last:]
        numbers, capped, near = ([getattr(step, name) for step in steps] for name in ("number", "capped", "near"))
        panel.step(
            numbers, near, where="mid", color=BLUE, lw=1.4, ls="--", label="capped, or within a tenth of the cap"
        )
        panel.step(numbers, capped, where="mid", color=INK, lw=2, label="capped")
        if died:
            panel.plot(numbers[-1], capped[-1], "X", color=VERMILLION, ms=11, mec="white", clip_on=False, zorder=5)
            panel.annotate(
                "dies here",
                (numbers[-1], capped[-1]),
                (0.45, 0.42),
                textcoords="axes fraction",
                ha="right",
                weight="bold",
                arrowprops={"arrowstyle": "-", "color": VERMILLION, "shrinkB": 7},
            )
        panel.set_title(title)
        panel.set_xlabel("step")
        panel.set_xlim(begin, end + max(1, 0.04 * (end - begin)))
        panel.set_ylim(0, 1.05 * highest + 0.5)
        panel.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        panel.yaxis.set_major_locator(MaxNLocator(5, integer=True))
        panel.grid(axis="y", color=GREY, alpha=0.25)
    axes[0][0].set_ylabel("vectors in the batch")
    made.legend(*axes[0][0].get_legend_handles_labels(), ncols=2, loc="outside upper left", fontsize=9)
    return made
