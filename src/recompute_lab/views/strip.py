"""The strip: the saved tensors of two passes side by side, the odd one out marked."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import ConnectionPatch, Rectangle

from recompute_lab.instruments.ledger import Pair, SavedTensor, unmatched
from recompute_lab.views.style import BLUE, GREY, INK, PALE_BLUE, SOFT_BLUE, VERMILLION, figure, styled

_AROUND = 4  # columns shown on each side of the odd one out
_ABSENT, _LIGHT, _DARK = 0, 1, 2


@styled
def strip(pairs: Sequence[Pair], names: tuple[str, str] = ("forward", "recomputation")) -> Figure:
    """Draw aligned ledgers (`align(first, second)`): above, every saved tensor; below, those around the first odd one.

    Each run of tensors that one operator saved has one shade, so the rhythm of the layers shows; an odd one out is
    marked by an arrow above, a hatch and its name below, and an empty dashed place in the other pass. Raises ValueError
    where there is nothing to draw.
    """
    if not pairs:
        raise ValueError("both passes saved nothing: there is no strip to draw")
    odd = [i for i, pair in enumerate(pairs) if None in pair]
    made, axes = figure(8.4, 3.6 if odd else 1.5, nrows=2 if odd else 1, height_ratios=(1, 1.5) if odd else None)
    overview, detail = axes if odd else (axes, None)
    _overview(overview, pairs, odd, names)
    if detail is not None:
        low = max(0, min(odd[0] - _AROUND, len(pairs) - 2 * _AROUND - 1))
        high = min(len(pairs), low + 2 * _AROUND + 1)
        _detail(detail, pairs[low:high], names)
        for x, corner in ((low - 0.5, 0), (high - 0.5, high - low)):
            made.add_artist(
                ConnectionPatch(
                    (x, 1.5), (corner, 2.06), "data", "data", axesA=overview, axesB=detail, color=GREY, lw=0.8
                )
            )
    return made


def _overview(axes: Axes, pairs: Sequence[Pair], odd: list[int], names: tuple[str, str]) -> None:
    counts = [sum(pair[side] is not None for pair in pairs) for side in (0, 1)]
    shades, shade, previous = [], _DARK, None
    for pair in pairs:
        operator = (pair[0] or pair[1]).operator
        if operator != previous:
            shade, previous = (_LIGHT if shade == _DARK else _DARK), operator
        shades.append(shade)
    cells = [[_ABSENT if pair[side] is None else s for pair, s in zip(pairs, shades, strict=True)] for side in (0, 1)]
    axes.imshow(
        cells,
        aspect="auto",
        cmap=ListedColormap(["white", SOFT_BLUE, BLUE]),
        vmin=0,
        vmax=2,
        interpolation="nearest",
    )
    axes.axhline(0.5, color="white", lw=3)
    for i in odd[:40]:
        axes.annotate(
            "",
            (i, -0.5),
            (i, -1.05),
            annotation_clip=False,
            arrowprops={"arrowstyle": "-|>", "color": VERMILLION, "lw": 1.6},
        )
    axes.set_yticks((0, 1), [f"{name}\n{count} saved" for name, count in zip(names, counts, strict=True)])
    axes.set_ylim(1.5, -1.1)
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
    axes.set_xticks([])
    gap = len(unmatched(pairs))
    axes.set_title(
        f"{len(pairs)} places, one per saved tensor, in the order of saving; {gap or 'none'} without a partner"
    )


def _label(row: SavedTensor) -> str:
    operator = row.operator.replace("_", "_\n")
    return f"{operator}\n{'×'.join(map(str, row.shape))}"


def _detail(axes: Axes, pairs: Sequence[Pair], names: tuple[str, str]) -> None:
    for column, pair in enumerate(pairs):
        for side, row in enumerate(pair):
            lone = row is not None and None in pair
            axes.add_patch(
                Rectangle(
                    (column + 0.05, 1.06 - side),
                    0.9,
                    0.88,
                    facecolor="white" if row is None or lone else PALE_BLUE,
                    edgecolor=VERMILLION if None in pair else GREY,
                    hatch="////" if lone else None,
                    linestyle="--" if row is None else "-",
                    linewidth=1.6 if None in pair else 1.0,
                )
            )
            text = "nothing\nsaved" if row is None else _label(row)
            axes.text(
                column + 0.5,
                1.5 - side,
                text,
                ha="center",
                va="center",
                fontsize=8,
                color=INK,
                weight="bold" if lone else "normal",
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.2} if lone else None,
            )
        number = (pair[0] or pair[1]).position
        axes.text(column + 0.5, -0.02, f"no. {number}", ha="center", va="top", fontsize=8, color=GREY)
    axes.set_xlim(0, len(pairs))
    axes.set_ylim(-0.25, 2.1)
    axes.set_yticks((1.5, 0.5), names)
    axes.set_xticks([])
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
