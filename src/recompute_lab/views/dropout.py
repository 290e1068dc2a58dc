"""Lost masks: where gradients point on average, and what becomes of a training run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Protocol

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator, NullLocator

from recompute_lab.instruments.estimates import Estimate, Interval
from recompute_lab.views.style import BLUE, GREY, INK, PALE, PURPLE, VERMILLION, figure, styled

# Colour, line and mark of a treatment; any other is drawn as the last.
_LOOKS = {
    "baseline": (INK, "-", "o"),
    "replayed": (GREY, "none", "o"),
    "no dropout": (GREY, "-", "v"),
    "lost": (VERMILLION, "--", "s"),
    "off": (BLUE, ":", "^"),
    "lost, loss inside": (PURPLE, "-.", "D"),
}
_SPREAD = 0.25, 0.75  # the quantiles over seeds that a band reaches to: the middle half


class Compared(Protocol):
    """An average gradient, simulated, and what a formula says it is, [d]."""

    estimate: Estimate
    formula: torch.Tensor


@styled
def expected_gradients(
    rows: Mapping[str, Compared], ridge: torch.Tensor, least_squares: torch.Tensor, errors: float = 3
) -> Figure:
    """One panel per treatment: each component's average, with `errors` standard errors, and both formulas, [d].

    What the marks should lie on is drawn in every panel, so that one sees which of the two they do lie on.
    """
    made, axes = figure(8.4, 3.0, ncols=len(rows), sharey=True, squeeze=False)
    places = range(1, len(ridge) + 1)
    for panel, (name, row) in zip(axes[0], rows.items(), strict=True):
        for formula, colour, line, label in (
            (ridge, BLUE, "-", "formula: with the penalty"),
            (least_squares, VERMILLION, "--", "formula: least squares alone"),
        ):
            for place, value in zip(places, formula.tolist(), strict=True):
                ends = [place - 0.42, place + 0.42]
                panel.plot(ends, [value, value], color=colour, linestyle=line, lw=2, label=label)
                label = None
        bars = (errors * row.estimate.error).tolist()
        panel.errorbar(
            places, row.estimate.mean.tolist(), bars, fmt="o", color=INK, ms=5, mfc="white", capsize=3, lw=1.2,
            label=f"simulated, ± {errors:g} standard errors", zorder=3,
        )  # fmt: skip
        panel.set_title(name)
        panel.set_xticks(list(places))
        panel.axhline(0, color=PALE, lw=0.8, zorder=0)
        panel.set_xlabel("weight")
    axes[0, 0].set_ylabel("average gradient")
    made.legend(*axes[0, 0].get_legend_handles_labels(), ncols=3, loc="outside upper left", fontsize=9)
    return made


@styled
def divergence_by_layers(curves: Mapping[float, Mapping[int, Sequence[float]]]) -> Figure:
    """Relative gradient errors against the number of stochastic layers, one line per p, both axes logarithmic.

    `curves[p][layers]` has one error per seed. Marks are means, bars reach from the smallest to the largest.
    """
    made, axes = figure(7.0, 3.6)
    looks = zip("osD^v", (PURPLE, BLUE, GREY, VERMILLION, INK), strict=True)
    for i, ((p, by_layers), (mark, colour)) in enumerate(zip(sorted(curves.items()), looks, strict=False)):
        layers = sorted(by_layers)
        means = [sum(by_layers[k]) / len(by_layers[k]) for k in layers]
        below = [m - min(by_layers[k]) for k, m in zip(layers, means, strict=True)]
        above = [max(by_layers[k]) - m for k, m in zip(layers, means, strict=True)]
        beside = [k * 1.03 ** (i - (len(curves) - 1) / 2) for k in layers]  # so that bars do not cover each other
        axes.errorbar(beside, means, [below, above], fmt=f"{mark}-", color=colour, ms=5, lw=1.2, capsize=2)
        axes.text(layers[-1] * 1.14, means[-1], f"p = {p:g}", va="center", bbox={"fc": "white", "ec": "none", "pad": 1})
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xticks(layers, [str(k) for k in layers])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlim(layers[0] / 1.2, layers[-1] * 1.7)
    _plain_log_ticks(axes, [e for by_layers in curves.values() for errors in by_layers.values() for e in errors])
    axes.set_xlabel("layers with dropout")
    axes.set_ylabel("relative gradient error, one step")
    axes.grid(axis="y", color=GREY, alpha=0.25)
    return made


def _plain_log_ticks(axes: Axes, values: Sequence[float]) -> None:
    """Ticks at powers of ten, in plain figures; at 2 and 5 times them as well, where there is room."""
    low, high = min(values) * 0.85, max(values) * 1.18
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = (1, 2, 5) if high < 100 * low else (1,)
    ticks = [t * 10.0**n for n in powers for t in steps if low <= t * 10.0**n <= high]
    axes.set_yticks(ticks, [f"{t:g}" for t in ticks])
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_ylim(low, high)


@styled
def training_curves(
    probes: Sequence[int], panels: Mapping[str, Mapping[str, Mapping[str, Sequence[Sequence[float]]]]], ylabel: str
) -> Figure:
    """One column per p, one row per quantity, one line per treatment: the median over seeds and their middle half.

    `panels[column][row][treatment]` is [probes][seeds], measured after `probes` steps; `ylabel` says what it is. The
    vertical axes are logarithmic, one for each row.
    """
    columns = list(panels)
    rows = list(panels[columns[0]])
    made, axes = figure(
        8.4, 0.7 + 2.1 * len(rows), nrows=len(rows), ncols=len(columns), sharex=True, sharey="row", squeeze=False
    )
    for i, row in enumerate(rows):
        values = []
        for j, column in enumerate(columns):
            for treatment, curve in panels[column][row].items():
                values += _curve(axes[i, j], probes, torch.tensor(curve, dtype=torch.float64), treatment)
            if i == 0:
                axes[i, j].set_title(column)
            if i == len(rows) - 1:
                axes[i, j].set_xlabel("step")
            axes[i, j].set_yscale("log")
            axes[i, j].grid(axis="y", color=GREY, alpha=0.25)
        _plain_log_ticks(axes[i, 0], [v for v in values if v > 0])
        axes[i, 0].set_ylabel(f"{ylabel}\n{row}")
    handles, _ = axes[0, 0].get_legend_handles_labels()
    handles.append(Patch(color=GREY, alpha=0.3, lw=0, label="lines: median of the seeds; shaded: their middle half"))
    made.legend(handles=handles, ncols=len(handles), loc="outside upper left", fontsize=9)
    return made


def _curve(axes: Axes, probes: Sequence[int], curve: torch.Tensor, treatment: str) -> list[float]:
    """Draws one treatment; the values that must be in sight."""
    colour, line, mark = _LOOKS.get(treatment, (PURPLE, "-.", "D"))
    low, high = (curve.quantile(q, dim=1) for q in _SPREAD)
    middle = curve.quantile(0.5, dim=1)
    hollow = {"mfc": "white", "ms": 7, "zorder": 1} if treatment == "replayed" else {"ms": 3.5, "zorder": 3}
    axes.plot(probes, middle.tolist(), color=colour, linestyle=line, marker=mark, lw=1.6, label=treatment, **hollow)
    if treatment != "replayed":  # its band is the baseline's
        axes.fill_between(probes, low.tolist(), high.tolist(), color=colour, alpha=0.15, lw=0)
    return [*low.tolist(), *high.tolist()]


@styled
def paired_differences(panels: Mapping[str, Mapping[str, Mapping[str, Interval]]]) -> Figure:
    """One panel per quantity, one line per setting, one mark per treatment: its difference to the baseline.

    `panels[quantity][setting][treatment]` is an interval over seeds. A mark is filled where the interval excludes zero.
    """
    settings = list(next(iter(panels.values())))
    made, axes = figure(8.4, 1.1 + 0.62 * len(settings), ncols=len(panels), sharey=True, squeeze=False)
    for panel, (quantity, rows) in zip(axes[0], panels.items(), strict=True):
        panel.axvline(0, color=INK, lw=1)
        for y, (_, treatments) in enumerate(rows.items()):
            if y % 2:
                panel.axhspan(y - 0.5, y + 0.5, color=PALE, alpha=0.35, lw=0)
            for i, (treatment, interval) in enumerate(treatments.items()):
                colour, _, mark = _LOOKS.get(treatment, (PURPLE, "-.", "D"))
                at = y + 0.52 * ((i + 0.5) / len(treatments) - 0.5)
                panel.plot([interval.low, interval.high], [at, at], color=colour, lw=1.6)
                fill = colour if interval.excludes_zero else "white"
                panel.plot(interval.mean, at, mark, color=colour, mfc=fill, ms=6, linestyle="none")
        panel.set_title(quantity, fontsize=10)
        panel.xaxis.set_major_locator(MaxNLocator(4))
        panel.grid(axis="x", color=GREY, alpha=0.25)
        panel.tick_params(axis="y", length=0)
        panel.tick_params(axis="x", labelsize=9)
    axes[0, 0].set_yticks(range(len(settings)), settings)
    axes[0, 0].set_ylim(len(settings) - 0.5, -0.5)
    looks = [(f"{name} − baseline", *_LOOKS.get(name, (PURPLE, "-.", "D"))) for name in next(iter(rows.values()))]
    looks.append(("hollow: the interval contains zero", GREY, "", "o"))
    handles = [
        Line2D([], [], color=colour, marker=mark, linestyle="none", label=label, mfc="white" if not line else colour)
        for label, colour, line, mark in looks
    ]
    made.legend(handles=handles, ncols=4, loc="outside upper left", fontsize=9, handletextpad=0.2)
    return made
