"""Slots: what the recomputation put where the forward had saved something, position by position, and what came of it.

torch does not align two passes: the first tensor that the recomputation saves goes where the forward's first was, the
second where its second was, and so on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from recompute_lab.instruments.checkpointing import Mismatch, Passes, Strategy
from recompute_lab.instruments.gradients import Divergence
from recompute_lab.instruments.ledger import SavedTensor
from recompute_lab.views.divergence import draw_layers
from recompute_lab.views.outcomes import brief
from recompute_lab.views.style import GREY, INK, PALE_BLUE, VERMILLION, figure, styled

_MOST = 8  # single boxes in a row; a shared beginning is one box, one and a half times as wide
_BEFORE = 2  # boxes shown before the first difference


@dataclass(frozen=True)
class Case:
    """One flip under one strategy, measured.

    `whole` is what the recomputation saves where nothing stops it, as in the second pass of reentrant checkpointing.
    """

    branch: str
    direction: str
    strategy: Strategy
    passes: Passes
    whole: Sequence[SavedTensor]
    divergence: Divergence

    @property
    def forward(self) -> list[SavedTensor]:
        """What the forward left slots for: nothing under reentrant checkpointing, where it runs without autograd."""
        return list(self.passes.forward)

    @property
    def again(self) -> list[SavedTensor]:
        """What the recomputation saved, until it ended or was ended."""
        return list(self.passes.recomputation or ())

    @property
    def wrong(self) -> list[int]:
        """Positions, from 1, of the slots filled by another operator or line than in the forward, or another shape."""
        return [a.position for a, b in zip(self.forward, self.again, strict=False) if a.key != b.key]

    @property
    def cut(self) -> list[SavedTensor]:
        """What the recomputation would have saved after it was ended."""
        return list(self.whole)[len(self.again) :]


def _shape(row: SavedTensor) -> str:
    return "×".join(map(str, row.shape)) or "scalar"


def sentence(case: Case) -> str:
    """What happened, in plain words. "torch raises" or "nothing raises" stands in it, whichever is true."""
    return f"{case.direction.capitalize()}: {_slots(case)} {_result(case.divergence)}{_idle(case)}"


def _slots(case: Case) -> str:
    """What the recomputation saved, and what of it torch could notice."""
    if case.strategy.use_reentrant:
        return "the recomputation builds a graph of its own, which is compared with nothing, so nothing raises."
    saved, outcome = len(case.forward), case.divergence.outcome
    if outcome == "count":
        return f"the forward saved {saved} tensors, the recomputation {len(case.again)}: fewer, so torch raises."
    if outcome == "more":
        return (
            f"the recomputation saved more than the forward's {saved} tensors, and early stop is off, so torch raises."
        )
    if outcome == "other":
        return "the recomputation failed, with an error that is not about its tensors, so torch raises."
    if case.wrong:
        place = case.wrong[0]
        before, after = case.forward[place - 1], case.again[place - 1]
        stopped = f" and stopped: it had its {saved}" if case.cut else ""
        put = (
            f"in slot {place} the forward had saved {before.operator}'s tensor ({_shape(before)}), the recomputation "
            f"put {after.operator}'s ({_shape(after)}) there{stopped}."
        )
        if outcome == "metadata":
            return f"{put} The check compares shapes, so torch raises."
        agree = all(a.shape == b.shape for a, b in zip(case.forward, case.again, strict=False))
        return f"{put} {'The shapes agree' if agree else 'The check is off'}, so nothing raises."
    if case.cut:
        return (
            f"the recomputation filled all {saved} slots with what belongs there, and early stop cut off what the flip "
            "would have added, so nothing raises."
        )
    return (
        f"all {saved} slots got a tensor of the same operator and shape as in the forward, so nothing raises; "
        "what is in them is not compared."
    )


def _result(result: Divergence) -> str:
    if result.raised is not None:
        return "No gradient is used."
    if result.outcome == "fine":
        return "The gradients are right up to rounding."
    said = f"The gradients are off by up to {brief(result.damage)} times their size"
    for names, what in (
        (result.missing, "get none at all"),
        (result.unexpected, "get one that the plain run does not give"),
    ):
        if names:
            said += f"; {len(names)} parameters {what}"
    return said + "."


def _idle(case: Case) -> str:
    return " Early stop and determinism check mean nothing here." if case.strategy.use_reentrant else ""


@styled
def slots(case: Case) -> Figure:
    """Draw a case: above, the slots of both passes by position; below, the gradient error of each parameter.

    A shared beginning is one box. A slot filled with another tensor has a hatch and a "≠", an empty one a dashed frame;
    what the recomputation had no time for is dotted, behind a cut.
    """
    made, (strip, errors) = figure(8.4, 5.4, nrows=2)
    made.set_layout_engine("none")  # places of their own, so that nothing jumps from case to case
    strip.set_position((0.15, 0.66, 0.84, 0.33))
    errors.set_position((0.15, 0.18, 0.84, 0.38))
    _strip(strip, case)
    if case.divergence.raised is None:
        draw_layers(errors, {"": case.divergence})
        errors.set_title("gradients against the run without checkpointing", fontsize=10)
    else:
        errors.set_axis_off()
        said = f"no gradients: an error ended backward\n({Mismatch.of(case.divergence.raised)})"
        errors.text(0.5, 0.5, said, ha="center", va="center", linespacing=1.6)
    return made


def _strip(axes: Axes, case: Case) -> None:
    forward, again = case.forward, case.again + case.cut
    if case.strategy.use_reentrant:
        shared = max(0, len(again) - _MOST)
    else:
        first = (case.wrong or [min(len(forward), len(case.again)) + 1])[0]  # the first slot that differs
        differs = case.wrong or len(forward) != len(again)
        shared = max(0, first - 1 - (_BEFORE if differs else _MOST))
    count = max(len(forward), len(again)) - shared
    shown, left = min(count, _MOST), max(0, count - _MOST)
    start = 1.5 if shared else 0.0  # where the single boxes begin
    width = start + shown
    if case.strategy.use_reentrant:
        _box(axes, 0, 1.2, width, "no slots: the forward is run without autograd", linestyle="--", edgecolor=GREY)
    if shared:
        for y in (1.2, 0) if forward else (0,):
            _box(axes, 0, y, start, f"1 to {shared}\nthe same" if forward else f"1 to {shared}")
        if forward:
            axes.text(start / 2, 1.1, "=", **_CENTRE)
    for column in range(shown):
        place = shared + column  # from 0
        x = start + column
        before = forward[place] if place < len(forward) else None
        after = again[place] if place < len(again) else None
        axes.text(x + 0.5, 2.32, str(place + 1), fontsize=8, color=GREY, ha="center", va="center")
        odd = forward and (before is None or after is None or before.key != after.key)
        if before is not None:
            _box(axes, x, 1.2, 1, _name(before))
        elif forward:
            _box(axes, x, 1.2, 1, "no\nslot", edgecolor=GREY, linestyle="--")
        if after is None:
            _box(axes, x, 0, 1, "nothing", edgecolor=VERMILLION, linestyle="--", linewidth=1.6)
        elif place >= len(case.again):
            _box(axes, x, 0, 1, _name(after), edgecolor=GREY, linestyle=":", color=GREY)
        elif odd:
            _box(axes, x, 0, 1, _name(after), edgecolor=VERMILLION, hatch="////", linewidth=1.6, weight="bold")
        else:
            _box(axes, x, 0, 1, _name(after))
        if forward and place < len(case.again) or after is None:
            axes.text(x + 0.5, 1.1, "≠" if odd else "=", weight="bold" if odd else "normal", **_CENTRE)
    ended = _ended(case)
    if ended and len(case.again) <= shared + shown:
        x = start + len(case.again) - shared
        axes.plot((x, x), (-0.22, 1.1), color=INK, lw=2.2, clip_on=False)
        axes.text(x, -0.3, f"{ended} ✂", fontsize=8, ha="right", va="top")
    if left:
        axes.text(width + 0.08, 0.5, f"+{left}", fontsize=9, va="center")
    axes.set_xlim(0, _MOST + (2.1 if left else 1.5))
    axes.set_ylim(-0.62, 2.5)
    axes.set_yticks((1.7, 0.5), (f"forward\n{len(forward)} saved", f"recomputation\n{len(case.again)} saved"))
    axes.set_xticks([])
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


_CENTRE = {"ha": "center", "va": "center", "fontsize": 10}


def _ended(case: Case) -> str:
    """What ended the recomputation before it was through, if anything did."""
    if case.passes.recomputation is not None and case.passes.recomputation.ended.startswith("raised"):
        return "an error ended it"
    return "stopped early" if case.cut else ""


def _name(row: SavedTensor) -> str:
    return f"{row.operator}\n{_shape(row)}"


def _box(axes: Axes, x: float, y: float, width: float, text: str, color=INK, weight="normal", **look) -> None:
    look = {"facecolor": "white" if len(look) else PALE_BLUE, "edgecolor": GREY, "linewidth": 1.0} | look
    axes.add_patch(Rectangle((x + 0.04, y), width - 0.08, 1, **look))
    axes.text(
        x + width / 2,
        y + 0.5,
        text,
        color=color,
        weight=weight,
        ha="center",
        va="center",
        fontsize=8.5,
        linespacing=1.1,
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.2} if "hatch" in look else None,
    )
