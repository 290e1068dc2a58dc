"""The masks that both passes of a checkpointed segment drew, where they differ, and what that does to the gradients."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from recompute_lab.instruments.gradients import Divergence
from recompute_lab.views.divergence import draw_layers
from recompute_lab.views.outcomes import brief
from recompute_lab.views.style import BLUE, GREY, PALE, VERMILLION, figure, styled


@dataclass(frozen=True)
class Case:
    """Layers with dropout under one way to checkpoint, measured.

    `forward` and `recomputation` are what the first layer was multiplied by in each pass, [N, width]: 0 where a value
    was dropped. `stream` names what all masks are drawn from, and `p` is the share that they drop.
    """

    stream: str
    p: float
    forward: torch.Tensor
    recomputation: torch.Tensor
    divergence: Divergence

    @property
    def differ(self) -> float:
        """The share of places in which the passes differ."""
        return float((self.forward != self.recomputation).double().mean())


def sentence(case: Case) -> str:
    """What happened, in plain words. "same mask" or "another mask" stands in it, whichever is true."""
    return f"{_masks(case)} {_result(case.divergence)}"


def _masks(case: Case) -> str:
    if case.differ:
        return (
            f"The recomputation drew another mask: {case.differ:.0%} of the places differ, since {case.stream} was not "
            "replayed."
        )
    if case.p == 0:
        return "Both passes drew the same mask: at p = 0 it keeps everything, replayed or not."
    return f"Both passes drew the same mask: {case.stream} was replayed."


def _result(result: Divergence) -> str:
    if result.raised is not None:
        return f"An error ended backward ({type(result.raised).__name__})."
    if result.equal:
        return "The gradients equal the plain run's, bit for bit."
    if result.outcome == "fine":
        return "The gradients are right up to rounding."
    return f"No error; the gradients are off by up to {brief(result.damage)} times their size."


@styled
def masks_and_divergence(case: Case) -> Figure:
    """Draw a case: on the left both masks and where they differ; on the right the gradient error of each parameter."""
    made, (masks, errors) = figure(8.4, 3.3, ncols=2)
    made.set_layout_engine("none")  # places of their own, so that nothing jumps from case to case
    masks.set_position((0.03, 0.01, 0.45, 0.98))
    errors.set_position((0.635, 0.24, 0.36, 0.66))
    draw_masks(masks, case.forward != 0, case.recomputation != 0)
    draw_layers(errors, {"": case.divergence})
    errors.set_title("gradients against the plain run", fontsize=10)
    return made


def draw_masks(axes: Axes, first: torch.Tensor, second: torch.Tensor) -> None:
    """Draw the boolean masks of the forward and of the recomputation, [N, width], and their differences, side by side.

    Dark is kept, white is dropped. Raises ValueError where the masks have different shapes.
    """
    if first.shape != second.shape:
        raise ValueError(f"two masks of one layer have one shape; got {list(first.shape)} and {list(second.shape)}")
    differ = first != second
    rows, width = first.shape
    for place, (mask, title, what, colour) in enumerate(
        (
            (first, "forward", "kept", BLUE),
            (second, "recomputation", "kept", BLUE),
            (differ, "they differ", "of the places", VERMILLION),
        )
    ):
        left = place * (width + 3)  # in one system of axes: three would take three times as long to draw
        axes.pcolormesh(
            range(left, left + width + 1),
            range(rows + 1),
            mask.numpy(),
            cmap=ListedColormap(["white", colour]),
            vmin=0,
            vmax=1,
            edgecolors=PALE,
            lw=0.4,
        )
        axes.add_patch(Rectangle((left, 0), width, rows, fill=False, edgecolor=GREY, clip_on=False))
        axes.text(left, -0.7, title)
        middle = {"ha": "center", "x": left + width / 2}
        axes.text(y=rows + 0.7, s=f"{float(mask.double().mean()):.0%} {what}", va="top", **middle)
    if not differ.any():
        axes.text(y=rows / 2, s="nowhere", color=GREY, va="center", **middle)
    axes.text(-0.7, rows / 2, "first layer: rows of the input", rotation=90, ha="right", va="center", fontsize=9)
    axes.set_xlim(0, left + width)
    axes.set_ylim(rows + 2.5, -2.5)
    axes.set_aspect("equal")
    axes.set_axis_off()
