"""One look for every figure: readable in print, on a dark page, and without telling colours apart.

Figures sit on a white card, so that a dark theme does not swallow their text. Lines and marks have colours of the
Okabe-Ito palette, which never carry meaning alone: a mark, a hatch or a label says the same. For lines, marks and edges
are INK, GREY, BLUE, VERMILLION and PURPLE, whose contrast to white is at least 3; for text the first three, whose
contrast is at least 4.5. SKY and the soft and pale shades fill areas that have an edge. (Of the palette, green is left
out: too near to BLUE where blue cones are lacking, and to GREY where green ones are.)
Source: M. Okabe and K. Ito, Color Universal Design, 2008.
"""

from __future__ import annotations

import io
import textwrap

from IPython.display import Image, display
from matplotlib import rc_context
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

INK, GREY, PALE = "#1a1a1a", "#767676", "#d9d9d9"
BLUE, VERMILLION, PURPLE, SKY = "#0072B2", "#D55E00", "#CC79A7", "#56B4E9"
SOFT_BLUE, PALE_BLUE, PALE_VERMILLION = "#bcd8ec", "#dcebf6", "#fbe3d5"

_RC = {
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": GREY,
    "text.color": INK,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.frameon": False,
    "figure.facecolor": "white",
    "hatch.linewidth": 1.2,
}
styled = rc_context(_RC)  # a decorator: the caller's own matplotlib settings stay as they are
_COLUMNS = 96  # JupyterLab breaks longer lines of output in the middle of a word
_SCALE = 2  # rendered at twice its size on the page, for sharp text on dense screens


@styled
def figure(width: float = 8.0, height: float = 3.0, **subplots) -> tuple[Figure, object]:
    """A figure of `width` x `height` inches and its axes, as `Figure.subplots(**subplots)` returns them."""
    made = Figure(figsize=(width, height), layout="constrained")
    return made, made.subplots(**subplots)


@styled
def png(made: Figure, dpi: int = 90) -> bytes:
    """The figure as a PNG, without the metadata that would differ from machine to machine."""
    buffer, own = io.BytesIO(), made.dpi
    made.dpi = dpi * _SCALE
    try:  # not `savefig`, which draws the figure twice: once for the layout, and once for the picture
        FigureCanvasAgg(made).print_png(buffer, metadata={"Software": None})
    finally:
        made.dpi = own
    return buffer.getvalue()


def show(made: Figure, message: str, dpi: int = 90) -> None:
    """Display the figure, then print its message: one sentence, which readers without the picture get as well."""
    width = round(made.get_size_inches()[0] * dpi)
    display(Image(data=png(made, dpi), width=width, alt=message))
    print(textwrap.fill(message, _COLUMNS))
