"""Outcomes of one step, repeated."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from recompute_lab.views.style import BLUE, GREY, INK, PALE, SKY, VERMILLION, figure, styled

# Face, edge and hatch, which has the edge's colour: told apart in grey, too.
_LOOKS = {
    "fine": (PALE, GREY, ""),
    "count": (VERMILLION, "white", "////"),
    "metadata": (SKY, BLUE, "...."),
    "silent": (BLUE, "white", "xx"),
}
_NAMES = {
    "fine": "no error",
    "count": "different number of tensors",
    "metadata": "different metadata",
    "silent": "no error, wrong gradients",
}


@styled
def tally(rows: Mapping[str, Mapping[str, int]], label: str = "repetitions of the same step") -> Figure:
    """One bar per row, split by outcome ("fine", "count", "metadata", "silent"), each part with its number.

    Raises ValueError for any other outcome: a bar that leaves something out would mislead.
    """
    if unknown := {outcome for outcomes in rows.values() for outcome in outcomes} - set(_LOOKS):
        raise ValueError(f"a bar has parts for {', '.join(_LOOKS)}, and none for {', '.join(sorted(unknown))}")
    shown = {"fine", "count", "metadata"}.union(*rows.values())  # the legend keeps the usual three
    made, axes = figure(8.2, 0.75 + 0.62 * len(rows))
    for y, outcomes in enumerate(rows.values()):
        left = 0
        for outcome, (colour, edge, hatch) in _LOOKS.items():
            times = outcomes.get(outcome, 0)
            name = _NAMES[outcome] if y == 0 and outcome in shown else None
            axes.barh(y, times, left=left, height=0.62, color=colour, hatch=hatch, edgecolor=edge, label=name)
            if times:
                axes.text(
                    left + times / 2, y, str(times), ha="center", va="center", color=INK, weight="bold",
                    bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.5},
                )  # fmt: skip
            left += times
    axes.set_yticks(range(len(rows)), rows)
    axes.invert_yaxis()
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlim(0, max(sum(outcomes.values()) for outcomes in rows.values()))
    axes.set_xlabel(label)
    axes.legend(ncols=4, loc="lower left", bbox_to_anchor=(0, 1), fontsize=9, borderaxespad=0.2)
    return made
