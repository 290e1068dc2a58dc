"""A figure of which a few artists change: the rest is drawn once and kept."""

from __future__ import annotations

import io
from collections.abc import Sequence

from matplotlib.artist import Artist
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

from recompute_lab.views.style import styled


class Canvas:
    """`png()` is the figure as it is now; only the `changing` artists may have changed since the canvas was made.

    They are drawn last, above all else, in the order of their zorder. The figure is rendered at `scale` times its size
    on the page (`width` pixels), for sharp text; its layout is settled once, so nothing jumps when a number changes.
    """

    @styled
    def __init__(self, made: Figure, changing: Sequence[Artist], dpi: int = 90, scale: float = 1.5):
        self.width = round(made.get_size_inches()[0] * dpi)
        self.changing = sorted(changing, key=lambda artist: artist.zorder)
        for artist in self.changing:
            artist.set_animated(True)  # matplotlib's word for "left out of an ordinary draw"
        made.set_dpi(dpi * scale)
        self._made, self._agg = made, FigureCanvasAgg(made)
        self._agg.draw()
        made.set_layout_engine("none")
        self._background = self._agg.copy_from_bbox(made.bbox)

    @styled
    def png(self) -> bytes:
        """The static part as it was kept, the changing artists as they are now, as the bytes of a PNG file."""
        self._agg.restore_region(self._background)
        for artist in self.changing:
            self._made.draw_artist(artist)
        size = self._agg.get_width_height(physical=True)
        picture = Image.frombuffer("RGBA", size, self._agg.buffer_rgba(), "raw", "RGBA", 0, 1).convert("RGB")
        file = io.BytesIO()
        picture.save(file, "PNG", compress_level=1)  # the default takes several times as long to save a few kilobytes
        return file.getvalue()
