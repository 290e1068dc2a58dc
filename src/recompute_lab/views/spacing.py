"""How long a card stays away, from one answer to the next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta

from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from recompute_lab.views.style import BLUE, GREY, INK, PURPLE, VERMILLION, figure, styled

_LOOKS = ((BLUE, "o"), (VERMILLION, "s"), (PURPLE, "^"), (GREY, "D"), (INK, "v"))
_TICKS = {
    1: "1 minute",
    10: "10 minutes",
    60: "1 hour",
    1440: "1 day",
    10080: "1 week",
    43200: "1 month",
    525600: "1 year",
    5256000: "10 years",
}


@styled
def run_of_intervals(runs: Mapping[str, Sequence[timedelta]]) -> Figure:
    """A line for each run: how long the card stays away after its first answer, its second, and so on.

    The time stands on a logarithmic axis. Lines are labelled at their ends, by a run's name.
    """
    made, axes = figure(8.0, 3.8)
    ends: list[float] = []
    for (name, away), (colour, mark) in zip(runs.items(), _LOOKS, strict=False):
        minutes = [one.total_seconds() / 60 for one in away]
        axes.plot(range(1, len(away) + 1), minutes, color=colour, marker=mark, markersize=5, linewidth=1.5)
        axes.annotate(
            name, (len(away), minutes[-1]), (8, 0), textcoords="offset points", va="center", annotation_clip=False
        )
        ends.append(len(away))
    axes.set_yscale("log")
    axes.set_yticks(list(_TICKS), list(_TICKS.values()))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_xticks(range(1, max(ends, default=1) + 1))
    axes.set_xlim(0.8, max(ends, default=1) + 0.1)
    axes.grid(axis="y", color=GREY, alpha=0.25, linewidth=0.6)
    axes.set_xlabel("answer, each given as soon as the card is due")
    axes.set_title("How long the card stays away after each answer")
    return made
