"""Three curves of a guard against its cap, and how long runs live: measured marks, closed forms as lines."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from recompute_lab.instruments.margins import Curve
from recompute_lab.instruments.odds import binomial_interval, guard_true, passes_disagree
from recompute_lab.views.style import BLUE, GREY, INK, VERMILLION, figure, styled

# Colour and mark of each curve.
CURVES = {"position fires": (INK, "^"), "guard is true": (BLUE, "s"), "passes disagree": (VERMILLION, "o")}


def draw_curves(
    axes: Axes, sweep: Sequence[Curve], positions: int | None = None, zero: int = 0, every: int = 1
) -> None:
    """Draw one sweep: every `every`-th cap as a mark; with `positions`, the closed forms for so many as lines."""
    caps = [curve.cap - zero for curve in sweep]
    measured = (
        [c.firing for c in sweep],
        [c.true / c.passes for c in sweep],
        [c.disagreed / c.pairs for c in sweep],
    )
    for (name, (colour, mark)), shares in zip(CURVES.items(), measured, strict=True):
        size = 5.5 if mark == "^" else 4  # where two coincide, as for one position, both show
        line = {"ls": "" if positions else ":", "lw": 1, "markevery": every}
        axes.plot(caps, shares, marker=mark, color=colour, ms=size, mew=0, label=name, clip_on=False, **line)
    if positions:
        for name, closed, dashes in (("guard is true", guard_true, "--"), ("passes disagree", passes_disagree, "-")):
            values = [closed(c.firing, positions) for c in sweep]
            axes.plot(caps, values, color=CURVES[name][0], ls=dashes, lw=1.2, zorder=1)


@styled
def three_curves(
    sweeps: Mapping[str, Sequence[Curve]],
    positions: Mapping[str, int] | None = None,
    origin: str = "the limit",
    zero: int = 0,
) -> Figure:
    """One panel per sweep: share of positions past the cap, and how often guard and passes said so.

    Marks are measured. With `positions`, lines are the closed forms for that many positions that are alike and
    independent, from the measured share. Caps are shown in ulps above `zero`, which `origin` names.
    """
    made, axes = figure(8.2, 3.3, ncols=len(sweeps), sharey=True, squeeze=False)
    for panel, (title, sweep) in zip(axes[0], sweeps.items(), strict=True):
        draw_curves(panel, sweep, positions and positions[title], zero)
        panel.set_title(title)
        panel.set_ylim(0, 1)
        panel.set_xlabel(f"cap, in ulps above {origin}")
        panel.xaxis.set_major_locator(MaxNLocator(7, integer=True))
        panel.grid(axis="y", color=GREY, alpha=0.25)
    axes[0][0].set_ylabel("share, probability")
    _legend(made, axes[0][0])
    return made


@styled
def lifetimes(died: Mapping[int, int], runs: int, expected: Callable[[int], float]) -> Figure:
    """The share of `runs` runs that died, by the number of segments, with 95% intervals; a line is `expected`."""
    made, axes = figure(6.4, 2.9)
    counts = sorted(died)
    shares = [died[count] / runs for count in counts]
    ends = [binomial_interval(died[count], runs) for count in counts]
    below, above = ([abs(end[i] - share) for end, share in zip(ends, shares, strict=True)] for i in (0, 1))
    axes.plot(counts, [expected(count) for count in counts], color=BLUE, lw=1.4, ls="--", label="closed form")
    axes.errorbar(
        counts, shares, (below, above), fmt="X", color=VERMILLION, ms=8, capsize=4, label="measured, 95% interval"
    )
    axes.set_xscale("log", base=2)
    axes.set_xticks(counts, [str(count) for count in counts])
    axes.set_xlabel("checkpointed segments in a step")
    axes.set_ylabel("runs that died")
    axes.set_ylim(0, 1.06)
    axes.grid(axis="y", color=GREY, alpha=0.25)
    axes.legend(loc="lower right", fontsize=9)
    axes.set_title(f"{runs} runs for each number of segments", color=INK)
    return made


def _legend(made: Figure, axes: Axes) -> None:
    made.legend(*axes.get_legend_handles_labels(), ncols=3, loc="outside upper left", fontsize=9)
