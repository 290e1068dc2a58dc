"""Who replays which random stream."""

from __future__ import annotations

import re
from collections.abc import Mapping
from textwrap import wrap

from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from recompute_lab.views.style import BLUE, GREY, INK, PALE_VERMILLION, VERMILLION, figure, styled

_LOOKS = {
    True: ("replayed", dict(facecolor="white", edgecolor=BLUE), dict(color=BLUE)),
    False: ("lost", dict(facecolor=PALE_VERMILLION, edgecolor=VERMILLION, hatch="///"), dict(color=INK, weight="bold")),
}


@styled
def replays(table: Mapping[str, Mapping[str, bool]]) -> Figure:
    """A row for each stream, a column for each strategy: is the mask replayed, or lost without an error?

    Long names of columns are broken into lines. Raises ValueError where rows have different columns, or there is none.
    """
    columns = list(next(iter(table.values()), {}))
    if not columns or any(list(row) != columns for row in table.values()):
        raise ValueError("a table has rows, all with the same columns")
    made, axes = figure(8.4, 0.95 + 0.42 * len(table))
    for y, row in enumerate(table.values()):
        for x, replayed in enumerate(row.values()):
            word, box, text = _LOOKS[replayed]
            axes.add_patch(Rectangle((x + 0.04, y + 0.07), 0.92, 0.86, linewidth=1.0, **box))
            axes.text(
                x + 0.5, y + 0.5, word, ha="center", va="center", fontsize=8.5,
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.2}, **text,
            )  # fmt: skip
    axes.set_xlim(0, len(columns))
    axes.set_ylim(len(table), 0)
    axes.set_yticks([y + 0.5 for y in range(len(table))], table)
    axes.xaxis.tick_top()
    names = [_wrapped(column) for column in columns]
    axes.set_xticks([x + 0.5 for x in range(len(columns))], names, fontsize=8, color=GREY)
    axes.tick_params(length=0, labelcolor=INK)
    axes.spines[:].set_visible(False)
    return made


def _wrapped(name: str) -> str:
    """Broken into lines that fit a column; at underscores, too."""
    parts = re.sub(r"(_|=)", r"\1 ", name)
    return "\n".join(re.sub(r"(_|=) ", r"\1", line) for line in wrap(parts, 14))
