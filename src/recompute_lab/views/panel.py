"""Controls, a picture and a sentence: what the interactive panels of all lessons are made of.

`observe` and nothing else: what `interact` and `Output` show leaks into whichever cell runs, and a figure displayed
anew takes many times as long as new bytes in an `Image`.
"""

from __future__ import annotations

import html
import threading
from collections.abc import Iterable
from functools import partial

import ipywidgets as widgets
import traitlets

from recompute_lab.instruments.interrupts import uninterrupted
from recompute_lab.views.style import GREY, figure, png


class Picture(widgets.Image):
    """An image that has a name: `tooltip` becomes its title, which screen readers read where there is no alt text.

    ipywidgets' own image has no alt text, and breaks on a tooltip, because its browser side looks for a description.
    """

    description = traitlets.Unicode("").tag(sync=True)


class Number(widgets.HBox):
    """A whole number from `low` to `high`: a labelled box to type it or step it by arrow keys, and a slider.

    The box is what a screen reader finds by its label; ipywidgets gives the handle of a slider no name. `value` is the
    number; out of range it becomes the nearest end.
    """

    value = traitlets.Int()

    def __init__(self, label: str, low: int, high: int, value: int = 0):
        self.low, self.high = low, high
        box = widgets.BoundedIntText(
            value,
            min=low,
            max=high,
            description=label,
            tooltip="",  # without one, ipywidgets shows the word "null"
            style=_STYLE,
            layout=widgets.Layout(width="auto"),
        )
        slider = widgets.IntSlider(value, min=low, max=high, readout=False, layout=widgets.Layout(width="240px"))
        super().__init__([box, slider], value=value, layout=widgets.Layout(flex_flow="row wrap", max_width="100%"))
        for part in self.children:
            traitlets.link((self, "value"), (part, "value"))

    @traitlets.validate("value")
    def _within(self, proposal) -> int:
        return min(max(proposal["value"], self.low), self.high)


def choice(label: str, options: Iterable, value) -> widgets.Dropdown:
    """A labelled list to choose from; `options` are values, or pairs of a text and a value."""
    return widgets.Dropdown(
        options=list(options),
        value=value,
        description=label,
        tooltip="",
        style=_STYLE,
        layout=widgets.Layout(width="auto", max_width="100%"),
    )


class Sentence(widgets.HTML):
    """Plain text that a screen reader speaks when it changes."""

    text = traitlets.Unicode()

    @traitlets.observe("text")
    def _shown(self, change) -> None:
        said = html.escape(change["new"])
        self.value = f'<div role="status" aria-live="polite" style="line-height: 1.5">{said}</div>'


_LEGIBLE = 480  # pixels of the page: the least width of a panel's picture
_STYLE = {"description_width": "initial"}  # labels as long as they are, not cut off


class Panel(widgets.VBox):
    """Labelled controls in rows, a picture below, and below that a sentence that says what the picture shows.

    A panel of a lesson is a subclass. It hands its controls over by name (each becomes an attribute, so that a cell can
    set `panel.cap.value = 3` and print `panel.message`), calls `refresh()` when it is ready, and has one method of its
    own, `answer`. `about` says what the picture is of, for those who do not see it; `size` is the picture's, in pixels.
    """

    def __init__(self, about: str, size: tuple[int, int], **controls: widgets.Widget):
        self._size, self._names = size, list(controls)
        self._answered: tuple = ()  # the controls' values that picture and sentence are for; none after an interrupt
        self._drawing = threading.RLock()  # JupyterLab moves controls in one thread of the kernel, cells in another
        # As wide as there is room; where a page is narrow or zoomed, it is scrolled before its text is too small.
        layout = widgets.Layout(max_width="100%", min_width=f"{min(size[0], _LEGIBLE)}px", height="auto")
        self.picture = Picture(tooltip=about, width=size[0], layout=layout)
        self.sentence = Sentence(layout=widgets.Layout(max_width=f"{size[0]}px"))
        for name, control in controls.items():
            setattr(self, name, control)
            control.observe(partial(self._moved, name), "value")
        row = widgets.Box(list(controls.values()), layout=widgets.Layout(flex_flow="row wrap", grid_gap="2px 16px"))
        super().__init__([row, self.picture, self.sentence])

    def answer(self, changed: str | None) -> tuple[bytes, str]:
        """The picture (PNG) and the sentence for the controls as they are now.

        `changed` names the control that moved; None where any may have. What is raised is shown as a sentence.
        """
        raise NotImplementedError

    def refresh(self, changed: str | None = None) -> None:
        """Picture and sentence anew. Always for the controls' latest values, so nothing stale can be left standing."""
        with self._drawing:
            self._answered = ()
            try:
                try:
                    picture, sentence = self.answer(changed)
                except ValueError as refused:
                    picture, sentence = self._nothing(), str(refused)
                except Exception as error:  # in an observer it would vanish into the server's log
                    picture, sentence = self._nothing(), failure(error)
                self.picture.value = picture
                self.sentence.text = sentence
                self._answered = self._values()
            except BaseException:  # a cell was interrupted: the controls have moved, picture or sentence may not have
                with uninterrupted():
                    self.picture.value, self.sentence.text = self._nothing(), "Interrupted: move a control to go on."
                raise

    @property
    def message(self) -> str:
        """The sentence below the picture, which is made anew if an interrupt had left none for these controls."""
        with self._drawing:
            if self._answered != self._values():
                self.refresh()
            return self.sentence.text

    def _values(self) -> tuple:
        return tuple(getattr(self, name).value for name in self._names)

    def _moved(self, name: str, change) -> None:
        self.refresh(name)

    def _nothing(self) -> bytes:
        """A card of the picture's size that says that there is none: the last one would no longer be true."""
        width, height = self._size
        card, axes = figure(width / 90, height / 90)
        axes.set_axis_off()
        axes.text(0.5, 0.5, "no picture: the reason is below", ha="center", va="center", color=GREY, fontsize=12)
        return png(card)

    def __repr__(self) -> str:
        return f"Panel with {', '.join(self._names)}: run this cell to use it."


def failure(error: BaseException) -> str:
    """One sentence for what went wrong where nobody expected it to."""
    said = " ".join(str(error).split())
    return f"This went wrong ({type(error).__name__}{': ' + said if said else ''}). The controls still work."
