"""Bytes kept and time paid, against the number of checkpointed segments."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from recompute_lab.instruments.memory import Footprint
from recompute_lab.views.style import BLUE, GREY, INK, VERMILLION, figure, styled

FOLKLORE = 4 / 3  # backward costs two forwards; checkpointing adds one to the three


@styled
def segments(
    plain: Footprint,
    footprints: Mapping[int, Footprint],
    unit: int,
    formula: Callable[[int], float],
    times: Mapping[int, float] | None = None,
    *,
    log: bool = False,
) -> Figure:
    """A figure of what is held, in units of `unit` bytes, for each number of segments.

    `formula(k)` is what ought to be held at once; it is drawn as a thin line behind what was
    measured. With `times`, a second panel shows each time as a multiple of the plain step's.
    `log` makes the axis of bytes logarithmic.
    """
    made, axes = figure(8.0, 3.4, ncols=1 if times is None else 2, squeeze=False)
    _bytes(axes[0, 0], plain, footprints, unit, formula, log)
    if times is not None:
        _times(axes[0, 1], times)
    return made


def _bytes(axes: Axes, plain, footprints, unit, formula, log) -> None:
    counts = sorted(footprints)
    peaks = [footprints[k].peak / unit for k in counts]
    kept = [footprints[k].kept / unit for k in counts]
    axes.axhline(plain.peak / unit, color=GREY, linestyle="--", linewidth=1)
    axes.plot(counts, [formula(k) for k in counts], color=GREY, linewidth=1)
    axes.plot(counts, peaks, "o", color=BLUE, markersize=6)
    axes.plot(counts, kept, "s", color=VERMILLION, markersize=5, markerfacecolor="white")
    _segment_axis(axes, counts)
    if log:
        axes.set_yscale("log")
        axes.set_ylim(0.7, plain.peak / unit * 2)
        axes.set_yticks([1, 10, 100], ["1", "10", "100"])
        axes.minorticks_off()
    else:
        axes.set_ylim(0, plain.peak / unit * 1.18)
    axes.set_ylabel("activations held")
    axes.set_title("Memory", loc="left")
    label = dict(textcoords="offset points", fontsize=9)
    top = plain.peak / unit
    axes.annotate(f"plain step's peak: {top:.4g}", (counts[-1], top), xytext=(4, 5), ha="right", **label)
    point, aside = (1, (9, 4)) if log else (0, (26, -24))  # clear of the curve, steep or flat
    axes.annotate("peak (line: formula)", (counts[point], peaks[point]), xytext=aside, color=BLUE, **label)
    late = len(counts) // 2
    axes.annotate("after forward", (counts[late], kept[late]), xytext=(6, -13), **label)
    lowest = min(peaks)
    best = counts[peaks.index(lowest)]
    axes.annotate(
        f"lowest: {lowest:.4g}, at k = {best}",
        (best, lowest),
        xytext=(0, 42),
        ha="center" if best < counts[-1] / 2 else "right",
        arrowprops=dict(arrowstyle="->", color=INK, shrinkB=4),
        **label,
    )


def _times(axes: Axes, times: Mapping[int, float]) -> None:
    counts = sorted(times)
    ratios = [times[k] for k in counts]
    axes.axhline(1, color=GREY, linestyle="--", linewidth=1)
    axes.axhline(FOLKLORE, color=GREY, linestyle=":", linewidth=1.2)
    axes.plot(counts, ratios, "^-", color=BLUE, markersize=6, linewidth=1)
    _segment_axis(axes, counts)
    axes.set_ylim(0, max(*ratios, FOLKLORE) * 1.2)
    axes.set_ylabel("time / plain step's time")
    axes.set_title("Time, on this machine", loc="left")
    label = dict(textcoords="offset points", fontsize=9)
    axes.annotate("plain step (dashed): 1", (counts[-1], 1), xytext=(4, -12), ha="right", **label)
    axes.annotate("folklore (dotted): 4/3", (counts[-1], 1), xytext=(4, -25), ha="right", **label)
    for k, ratio in zip(counts, ratios, strict=True):
        axes.annotate(f"{ratio:.2f}", (k, ratio), xytext=(0, 7), ha="center", **label)


def _segment_axis(axes: Axes, counts: list[int]) -> None:
    axes.set_xscale("log")
    shown = counts[-1:]
    for k in reversed(counts):
        if 1.2 * k <= shown[0]:  # labels closer than that would touch
            shown.insert(0, k)
    axes.set_xticks(shown, [str(k) for k in shown])
    axes.minorticks_off()
    axes.set_xlabel("checkpointed segments, k")
