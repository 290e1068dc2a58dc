"""Running statistics that move twice per step: their course, what it does in eval mode, how far recipes are off."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator

from recompute_lab.instruments.estimates import Interval
from recompute_lab.views.style import BLUE, GREY, INK, PALE, PURPLE, VERMILLION, figure, styled

# Colour, line and mark of a run; any other is drawn as the last.
LOOKS = {
    "plain": (INK, "-", "o"),
    "checkpointed": (VERMILLION, "--", "s"),
    "non-reentrant": (VERMILLION, "--", "s"),
    "reentrant": (GREY, "none", "D"),
    "repaired": (BLUE, ":", "^"),
}
_OTHER = (PURPLE, "-.", "v")
_ON_TOP = ("reentrant", "repaired")  # hollow: they may lie on another line
_SPREAD = 0.25, 0.75  # the quantiles over seeds that a band reaches to: the middle half
ZERO = 1e-9  # where a deviation of nothing stands on a logarithmic axis


class Deviates(Protocol):
    """How far running statistics are from the plain run's, and both counters."""

    mean: float
    variance: float
    tracked: int
    expected: int


def look(name: str) -> tuple[str, str, str]:
    """Colour, line style and mark of a run."""
    return LOOKS.get(name, _OTHER)


@styled
def trajectories(panels: Mapping[str, Mapping[str, Sequence[float]]]) -> Figure:
    """One panel per statistic, one line per run: its value before the first step and after each, [steps + 1].

    A run named "reentrant" is drawn as hollow marks, since it lies on the other implementation's line. One named
    "batch" has the batches' own statistics, which the running one follows, as dots, [steps].
    """
    made, axes = figure(8.4, 3.1, ncols=len(panels), squeeze=False)
    for panel, (title, runs) in zip(axes[0], panels.items(), strict=True):
        for name, values in runs.items():
            draw_trajectory(panel, name, values)
        panel.set_title(title)
        panel.set_xlabel("step")
        panel.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        panel.yaxis.set_major_locator(MaxNLocator(5))
        panel.grid(axis="y", color=GREY, alpha=0.25)
    handles, labels = axes[0, 0].get_legend_handles_labels()
    made.legend(handles, labels, ncols=len(handles), loc="outside upper left", fontsize=9)
    return made


def draw_trajectory(axes: Axes, name: str, values: Sequence[float]) -> None:
    """One run's line in `trajectories`."""
    if name == "batch":
        steps = range(1, len(values) + 1)
        axes.plot(steps, values, ".", color=GREY, alpha=0.6, ms=4, zorder=1, label="the batch's own")
        return
    colour, line, mark = look(name)
    steps, every = range(len(values)), max(1, len(values) // 10)
    hollow = {"mfc": "white", "ms": 6, "zorder": 4} if name in _ON_TOP else {"ms": 4, "zorder": 3}
    axes.plot(steps, values, color=colour, linestyle=line, marker=mark, markevery=every, lw=1.6, label=name, **hollow)


@styled
def evaluations(
    probes: Sequence[int], panels: Mapping[str, Mapping[str, Mapping[str, Sequence[Sequence[float]]]]], ylabel: str
) -> Figure:
    """Columns and rows of panels, one line per way to run: the median over seeds and their middle half.

    `panels[column][row][way]` is [probes][seeds], measured after `probes` steps; `ylabel` says what it is.
    """
    columns = list(panels)
    rows = list(panels[columns[0]])
    made, axes = figure(
        8.4, 0.7 + 2.0 * len(rows), nrows=len(rows), ncols=len(columns), sharex=True, sharey=True, squeeze=False
    )
    for j, column in enumerate(columns):
        for i, row in enumerate(rows):
            panel = axes[i, j]
            for way, curve in panels[column][row].items():
                _median(panel, probes, torch.tensor(curve, dtype=torch.float64), way)
            panel.set_ylim(0)
            panel.xaxis.set_major_locator(MaxNLocator(5, integer=True))
            panel.grid(axis="y", color=GREY, alpha=0.25)
            if j == 0:
                panel.set_ylabel(f"{ylabel}\n{row}")
        axes[0, j].set_title(column)
        axes[-1, j].set_xlabel("step")
    handles, _ = axes[0, 0].get_legend_handles_labels()
    handles.append(Patch(color=GREY, alpha=0.3, lw=0, label="lines: median of the seeds; shaded: their middle half"))
    made.legend(handles=handles, ncols=len(handles), loc="outside upper left", fontsize=9)
    return made


def _median(axes: Axes, probes: Sequence[int], curve: torch.Tensor, way: str) -> None:
    colour, line, mark = look(way)
    low, middle, high = (curve.quantile(q, dim=1).tolist() for q in (_SPREAD[0], 0.5, _SPREAD[1]))
    axes.plot(probes, middle, color=colour, linestyle=line, marker=mark, ms=3.5, lw=1.6, label=way, zorder=3)
    axes.fill_between(probes, low, high, color=colour, alpha=0.15, lw=0)


@styled
def differences(
    probes: Sequence[int], panels: Mapping[str, Mapping[str, Sequence[Interval]]], ylabel: str = "checkpointed − plain"
) -> Figure:
    """One panel per column, one line per setting: intervals over seeds, one per probe.

    `panels[column][setting]` has an `Interval` for each of `probes`. A mark is filled where it excludes zero.
    """
    made, axes = figure(8.4, 3.5, ncols=len(panels), sharey=True, squeeze=False)
    looks = ((INK, "-", "o"), (BLUE, "--", "s"), (VERMILLION, ":", "^"), _OTHER)
    for panel, (column, settings) in zip(axes[0], panels.items(), strict=True):
        panel.axhline(0, color=INK, lw=1)
        for k, ((setting, intervals), (colour, line, mark)) in enumerate(zip(settings.items(), looks, strict=False)):
            beside = [place + 0.16 * (k - (len(settings) - 1) / 2) for place in range(len(probes))]
            panel.plot(beside, [i.mean for i in intervals], color=colour, linestyle=line, lw=1.2, zorder=2)
            for at, interval in zip(beside, intervals, strict=True):
                fill = colour if interval.excludes_zero else "white"
                panel.plot([at, at], [interval.low, interval.high], color=colour, lw=1.2, zorder=2)
                panel.plot(at, interval.mean, mark, color=colour, mfc=fill, ms=5, zorder=3)
            panel.plot([], [], color=colour, linestyle=line, marker=mark, label=setting)
        panel.set_title(column)
        panel.set_xticks(range(len(probes)), [str(p) for p in probes])
        panel.set_xlabel("step")
        panel.grid(axis="y", color=GREY, alpha=0.25)
    axes[0, 0].set_ylabel(ylabel)
    handles, _ = axes[0, 0].get_legend_handles_labels()
    handles.append(axes[0, 0].plot([], [], "o", color=GREY, mfc="white", label="hollow: the interval contains zero")[0])
    made.legend(handles=handles, ncols=3, loc="outside upper left", fontsize=9)
    return made


@styled
def deviations(rows: Mapping[str, Deviates], subject: str = "largest deviation from the plain run's") -> Figure:
    """One line per recipe or situation: the deviation of mean and variance, logarithmic, and the counter's.

    Equal in every bit stands at the left edge, as "0".
    """
    made, axes = figure(8.2, 1.15 + 0.36 * len(rows))
    for y, row in enumerate(rows.values()):
        if y % 2:
            axes.axhspan(y - 0.5, y + 0.5, color=PALE, alpha=0.35, lw=0)
        for value, colour, mark, label, above in (
            (row.mean, BLUE, "o", "running mean", -0.13),
            (row.variance, VERMILLION, "s", "running variance", 0.13),
        ):
            place = max(value, ZERO)
            axes.plot(
                place, y + above, mark, color=colour, ms=6, clip_on=False, label=label if y == 0 else None, zorder=3
            )
        weight = "normal" if row.tracked == row.expected else "bold"
        told = f"{row.tracked} for {row.expected}"
        axes.text(1.02, y, told, transform=axes.get_yaxis_transform(), va="center", weight=weight)
    axes.text(1.02, -0.75, "batches counted", transform=axes.get_yaxis_transform(), va="bottom", fontsize=9)
    axes.set_xscale("log")
    axes.set_xlim(ZERO, 10)
    ticks = [ZERO, *(10.0**n for n in range(-8, 1, 2))]
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.set_xticklabels(["0", *(f"$10^{{{n}}}$" for n in range(-8, 0, 2)), "1"])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_yticks(range(len(rows)), list(rows))
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", color=GREY, alpha=0.25)
    axes.set_xlabel(f"{subject} (0: equal in every bit)")
    made.legend(*axes.get_legend_handles_labels(), ncols=2, loc="outside upper left", fontsize=9, handletextpad=0.2)
    return made


@styled
def updates(curves: Mapping[str, Mapping[int, int]]) -> Figure:
    """How often a BatchNorm is updated in one step, against how many segments contain it: `curves[name][depth]`."""
    made, axes = figure(7.4, 3.2)
    looks = ((VERMILLION, "-", "s"), (BLUE, "--", "o"), _OTHER, (INK, ":", "D"))
    for k, ((name, by_depth), (colour, line, mark)) in enumerate(zip(curves.items(), looks, strict=False)):
        hollow = {"mfc": "white", "ms": 10 - 2 * k} if k else {"ms": 10}
        axes.plot(
            list(by_depth), list(by_depth.values()), color=colour, linestyle=line, marker=mark, lw=1.6, label=name,
            zorder=3 + k, **hollow,
        )  # fmt: skip
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_ylim(0)
    axes.set_xlabel("nested segments around the BatchNorm")
    axes.set_ylabel("updates per step")
    axes.grid(axis="y", color=GREY, alpha=0.25)
    made.legend(*axes.get_legend_handles_labels(), loc="outside right center", fontsize=9)
    return made
