"""Early warnings: when each one came, before a crash or where there was none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from recompute_lab.views.style import BLUE, GREY, INK, PALE, VERMILLION, figure, styled


@styled
def lead_times(leads: Mapping[str, Sequence[int | None]], false_alarms: Mapping[str, int], lived: int) -> Figure:
    """One row per statistic, one mark per run that died: how many steps before the crash the first alarm came.

    0 is the step that died. None, no alarm at all, is written out. On the right: in how many of `lived` runs that went
    on to the end there was an alarm as well.
    """
    made, axes = figure(8.2, 0.9 + 0.42 * len(leads))
    longest = max([lead for row in leads.values() for lead in row if lead is not None], default=0)
    for y, (name, row) in enumerate(leads.items()):
        axes.axhline(y, color=PALE, lw=1, zorder=0)
        came = [lead for lead in row if lead is not None]
        for lead in sorted(set(came)):
            look = dict(marker="X", color=VERMILLION) if lead == 0 else dict(marker="o", color=BLUE)
            axes.plot(lead, y, ms=9, mec="white", clip_on=False, **look)
            if came.count(lead) > 1:
                axes.annotate(
                    f"×{came.count(lead)}", (lead, y), (-7, 4), textcoords="offset points", ha="right", fontsize=8
                )
        if len(came) < len(row):
            silent = "no alarm" if not came else f"no alarm in {len(row) - len(came)}"
            axes.text(longest / 2, y, silent, ha="center", va="center", color=GREY, fontsize=9,
                      bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.5})  # fmt: skip
        told = f"{false_alarms[name]} of {lived}"
        axes.text(1.03, y, told, transform=axes.get_yaxis_transform(), va="center", ha="left", color=INK)
    axes.text(1.03, -0.55, "alarms in runs\nthat lived", transform=axes.get_yaxis_transform(), va="bottom", fontsize=9)
    axes.set_yticks(range(len(leads)), leads)
    axes.set_ylim(len(leads) - 0.5, -0.7)
    axes.set_xlim(longest + 1, 0)
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    axes.set_xlabel("steps between the first alarm and the crash (a cross: only the step that died)")
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    return made
