"""How far gradients are off: for each parameter, and over the steps of a run. Log scale, from equal to wrong."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from recompute_lab.instruments.gradients import ROUNDING, Divergence
from recompute_lab.views.style import BLUE, GREY, INK, PALE, PURPLE, VERMILLION, figure, styled

EQUAL, LOWEST, HIGHEST = 2e-10, 1e-8, 1e2  # equal to the last bit is drawn at EQUAL, no number below LOWEST
MISSING = 1.0  # a gradient that is not there is off by its whole size

_LOOKS = (
    {"color": BLUE, "linestyle": "-", "marker": "o", "markersize": 7},
    {"color": VERMILLION, "linestyle": "--", "marker": "s", "markersize": 5},
    {"color": INK, "linestyle": ":", "marker": "^", "markersize": 6},
    {"color": PURPLE, "linestyle": "-.", "marker": "D", "markersize": 5},
    {"color": GREY, "linestyle": (0, (5, 1, 1, 1, 1, 1)), "marker": "v", "markersize": 6},
)
_MOST_NAMES = 26  # more of them do not fit under the axis


def _looks(series: Mapping) -> list[dict]:
    if not series:
        raise ValueError("no series: there is nothing to draw")
    if len(series) > len(_LOOKS):
        raise ValueError(f"at most {len(_LOOKS)} series can be told apart in one figure; got {len(series)}")
    return list(_LOOKS[: len(series)])


@styled
def per_layer(divergences: Mapping[str, Divergence]) -> Figure:
    """The relative gradient error of each parameter, in the order of the forward, one line for each named divergence.

    Equal to the last bit is drawn at a floor of its own; a gradient that is missing stands at 1, its mark empty, one
    that the plain run does not have at the top, as a cross. A divergence whose run raised has no line, and its name in
    the legend says what it raised. Raises ValueError where there is nothing to draw, or more than can be told apart.
    """
    _looks(divergences)
    made, axes = figure(8.4, 3.9)
    lines = draw_layers(axes, divergences)
    made.legend(lines, [line.get_label() for line in lines], loc="outside upper left", ncols=3, fontsize=9)
    return made


def draw_layers(axes: Axes, divergences: Mapping[str, Divergence]) -> list:
    """Draw `per_layer` into `axes`; returns the lines for a legend."""
    names = _in_order(divergences.values())
    places = {name: place for place, name in enumerate(names)}
    top = _error_axis(axes, [row.error for d in divergences.values() for row in d.rows])
    lines, notes = [], {}
    for (title, result), look in zip(divergences.items(), _looks(divergences), strict=True):
        if result.raised is not None:
            lines += axes.plot([], [], **look | {"linestyle": "none"}, label=f"{title}: raised ({result.outcome})")
            continue
        rows = {row.name: _drawn(row.error, top) for row in result.rows}
        heights = [rows.get(name, math.nan) for name in names]
        lines += axes.plot(range(len(names)), heights, linewidth=1.2, label=title, **look)
        hollow = look | {"linestyle": "none", "markerfacecolor": "white", "markeredgewidth": 1.6, "zorder": 3}
        if result.missing:
            at = [places[name] for name in result.missing]
            axes.plot(at, [MISSING] * len(at), **hollow, gid="missing")
            notes["missing"] = (at[-1], MISSING)
        if result.unexpected:
            at = [places[name] for name in result.unexpected]
            cross = {"marker": "X", "markersize": 9}
            axes.plot(at, [top] * len(at), **hollow | cross, clip_on=False, gid="unexpected")
            notes["the plain run has none"] = (at[-1], top)
    for text, (x, y) in notes.items():
        right = x > 0.6 * len(names)  # towards the middle of the axes, away from their edge
        axes.annotate(
            text, (x, y), (-14 if right else 9, 10), textcoords="offset points", fontsize=8,
            ha="right" if right else "left", annotation_clip=False,
        )  # fmt: skip
    step = math.ceil(max(len(names), 1) / _MOST_NAMES)
    prefix = _common_prefix(names)
    axes.set_xticks(
        range(0, len(names), step),
        [name.removeprefix(prefix) for name in names[::step]],
        rotation=40,
        ha="right",
        rotation_mode="anchor",
        fontsize=8,
    )
    axes.set_xlim(-0.6, max(len(names), 1) - 0.4)
    return lines


def _in_order(divergences) -> list[str]:
    """Every parameter's name once, each after its neighbours: in the order of the longest, the others' filled in."""
    order: list[str] = []
    for result in sorted(divergences, key=lambda d: -len(d.rows)):
        before = None
        for row in result.rows:
            if row.name not in order:
                order.insert(0 if before is None else order.index(before) + 1, row.name)
            before = row.name
    for result in divergences:  # no run that is shown tells where these belong: after their nearest relatives
        for name in (*result.missing, *result.unexpected):
            if name not in order:
                relatives = [len(_common_prefix([name, other])) for other in order]
                nearest = max(relatives, default=0)
                last = max((i for i, n in enumerate(relatives) if n == nearest), default=-1)
                order.insert(last + 1, name)
    return order


def _common_prefix(names: Sequence[str]) -> str:
    """The dotted beginning that all names share, up to and with its last dot; "" for fewer than two names."""
    dotted = [name for name in names if "." in name]  # an argument has no dots
    if len(dotted) < 2:
        return ""
    first, last = min(dotted), max(dotted)
    same = 0
    while same < min(len(first), len(last)) and first[same] == last[same]:
        same += 1
    return first[: first.rfind(".", 0, same) + 1]


def _drawn(error: float, top: float) -> float:
    """Where an error is drawn: equal at its floor, what lies outside the axes at their edge, a NaN nowhere."""
    if math.isnan(error):
        return error
    return EQUAL if error == 0 else min(max(error, LOWEST), top)


def _error_axis(axes: Axes, errors: Sequence[float]) -> float:
    """Set up the axis of errors; returns its highest value."""
    highest = max((e for e in errors if math.isfinite(e)), default=1.0)
    top = min(max(10.0, 10 ** math.ceil(math.log10(highest) + 0.1)), HIGHEST) if highest > 0 else 10.0
    bottom = EQUAL / 6
    axes.set_yscale("log")
    axes.set_ylim(bottom, top)
    ticks = [10.0**exponent for exponent in range(-8, round(math.log10(top)) + 1, 2)]
    names = [f"$10^{{{round(math.log10(tick))}}}$" if tick != 1 else "1" for tick in ticks]
    axes.set_yticks([EQUAL, *ticks], ["equal,\nbit for bit", *names])
    axes.minorticks_off()
    axes.axhspan(bottom, ROUNDING, facecolor=PALE, alpha=0.45, zorder=0)
    axes.axhline(10 * EQUAL, color=GREY, lw=0.8, ls=(0, (1, 2)))  # the axis is broken here
    axes.axhline(1, color=GREY, lw=0.6)
    axes.text(
        0.995, 14 * EQUAL, "shaded: no more than rounding", ha="right", va="bottom", fontsize=8,
        transform=axes.get_yaxis_transform(),
    )  # fmt: skip
    axes.set_ylabel("relative gradient error")
    return top


@styled
def over_steps(series: Mapping[str, Sequence[float]], first: int = 1, died: Mapping[str, str] | None = None) -> Figure:
    """The relative gradient error against the uncheckpointed run, by training step, one line for each named series.

    A series starts at step `first` and may be shorter than the others; a NaN leaves a gap. `died` gives, for a series
    that an error ended, a word for it: its last step gets a cross. Equal to the last bit has a floor of its own.
    Raises ValueError where a series is empty, there are more than can be told apart, or `died` names none of them.
    """
    looks = _looks(series)
    died = died or {}
    if empty := [name for name, errors in series.items() if not len(errors)]:
        raise ValueError(f"no steps in {', '.join(empty)}")
    if unknown := set(died) - set(series):
        raise ValueError(f"{', '.join(sorted(unknown))} died, and is none of the series")
    made, axes = figure(8.4, 3.4)
    top = _error_axis(axes, [error for errors in series.values() for error in errors])
    ends = []
    for (name, errors), look in zip(series.items(), looks, strict=True):
        steps = range(first, first + len(errors))
        heights = [_drawn(error, top) for error in errors]
        every = max(1, len(errors) // 12)  # marks tell lines apart; a mark on each step would hide them
        axes.plot(steps, heights, **look, linewidth=1.4, markevery=every, label=name, clip_on=False)
        if name in died:
            axes.plot(steps[-1], heights[-1], "X", color=VERMILLION, ms=11, mec="white", clip_on=False, zorder=5)
        last = next((place for place in reversed(range(len(errors))) if not math.isnan(heights[place])), None)
        if last is not None:
            ends.append((heights[last], steps[last], f"{name}: {died[name]}" if name in died else name, look["color"]))
    end = first + max(len(errors) for errors in series.values()) - 1
    axes.set_xlim(first, max(end, first + 1))
    _end_labels(axes, ends, axes.get_xlim()[1])
    axes.set_xlabel("training step")
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    return made


def _end_labels(axes: Axes, ends: Sequence[tuple[float, float, str, str]], right: float) -> None:
    """Name each line beside the axes, at the height of its end, moved apart where two names would touch."""
    low, high = (math.log10(limit) for limit in axes.get_ylim())
    gap = (high - low) / 14
    placed = []
    for height, *rest in sorted(ends):
        y = math.log10(height)
        placed.append([max(y, placed[-1][0] + gap) if placed else y, height, *rest])
    for one, above in zip(reversed(placed), [None, *reversed(placed)], strict=False):  # and down again from the top
        one[0] = min(one[0], high if above is None else above[0] - gap)
    for y, height, x, name, color in placed:
        axes.annotate(
            name,
            (x, height),
            (1.03, (y - low) / (high - low)),
            textcoords="axes fraction",
            va="center",
            fontsize=9,
            annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": color, "lw": 0.8, "shrinkA": 1, "shrinkB": 5, "relpos": (0, 0.5)},
        )
