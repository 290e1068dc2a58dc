"""One evaluation, again and again: the number that it gives, and how near to its threshold the values lie."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from recompute_lab.views.style import BLUE, GREY, INK, VERMILLION, figure, styled


@styled
def repetitions(panels: Mapping[str, tuple[Sequence[float], Sequence[float]]]) -> Figure:
    """One panel for each number: what repeated runs gave without deterministic algorithms (crosses), and with them
    (a line of squares). Raises ValueError where there is no panel, or one without runs.
    """
    if not panels or not all(free and fixed for free, fixed in panels.values()):
        raise ValueError("a panel shows runs without deterministic algorithms, and runs with them")
    made, axes = figure(8.4, 2.9, ncols=len(panels), squeeze=False)
    for panel, (title, (free, fixed)) in zip(axes[0], panels.items(), strict=True):
        places = [range(1, len(runs) + 1) for runs in (free, fixed)]
        panel.plot(places[0], free, "x", color=VERMILLION, ms=6, mew=1.6, label="without deterministic algorithms")
        every = max(1, len(fixed) // 6)
        look = {"color": BLUE, "ms": 5, "mfc": "white", "lw": 1.4, "markevery": every, "zorder": 3}
        panel.plot(places[1], fixed, "-s", label="with them", **look)
        panel.set_title(title, fontsize=10)
        panel.set_xlabel("run")
        panel.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        panel.yaxis.set_major_locator(MaxNLocator(5, integer=all(isinstance(value, int) for value in (*free, *fixed))))
        low, high = min(*free, *fixed), max(*free, *fixed)
        room = 0.12 * (high - low) or 0.001 * abs(high)
        panel.set_ylim(low - room, high + room)
        panel.ticklabel_format(axis="y", useOffset=False)
        panel.tick_params(labelsize=9)
    made.legend(*axes[0][0].get_legend_handles_labels(), ncols=2, loc="outside upper left", fontsize=9)
    return made


@styled
def around(panels: Mapping[str, Sequence[int]], reach: int = 12) -> Figure:
    """One panel for each test: how many values lie at which distance from its threshold, in units in the last place.

    Distances beyond `reach` are counted at the sides, in words. The bars at most 8 from the threshold are hatched:
    there rounding can decide. Raises ValueError where there is nothing to show.
    """
    if not panels or not all(len(distances) for distances in panels.values()):
        raise ValueError("a panel shows distances; there is none")
    made, axes = figure(8.4, 3.0, ncols=len(panels), squeeze=False)
    for panel, (title, distances) in zip(axes[0], panels.items(), strict=True):
        counts = Counter(distance for distance in distances if abs(distance) <= reach)
        for distance, number in counts.items():
            near = abs(distance) <= 8
            look = {"color": VERMILLION, "hatch": "////"} if near else {"color": GREY}
            panel.bar(distance, number, width=0.9, edgecolor="white", **look)
        panel.axvline(0, color=INK, lw=1, ls="--")
        below, above = (sum(1 for d in distances if sign * d > reach) for sign in (-1, 1))
        highest = max(counts.values(), default=1)
        panel.set_ylim(0, 1.3 * highest)
        for number, x, align in ((below, 0.02, "left"), (above, 0.98, "right")):
            told = f"◂ {number} farther" if align == "left" else f"{number} farther ▸"
            panel.text(x, 0.97, told, transform=panel.transAxes, ha=align, va="top", fontsize=8.5, color=GREY)
        panel.set_xlim(-reach - 1, reach + 1)
        panel.set_title(title, fontsize=10)
        panel.yaxis.set_major_locator(MaxNLocator(4, integer=True))
    axes[0][0].set_ylabel("values")
    hatched = Patch(facecolor=VERMILLION, hatch="////", edgecolor="white", label="within 8: rounding can decide")
    farther = Patch(facecolor=GREY, edgecolor="white", label="farther")
    made.legend(handles=[hatched, farther], ncols=2, loc="outside upper left", fontsize=9)
    made.supxlabel("distance from the threshold, in units in the last place (ulps)", fontsize=10)
    return made
