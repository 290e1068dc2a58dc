"""Choose a random stream and a way to checkpoint: the masks of both passes, and what they do to the gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from recompute_lab.views.canvas import Canvas
from recompute_lab.views.masks import Case, masks_and_divergence, sentence
from recompute_lab.views.panel import Number, Panel, choice

IMPLEMENTATIONS = ("reentrant", "non-reentrant", "the course's own")
STAGES = ("nothing", "torch's default", "every default", "every default, and generators by name")
MOST_LAYERS = 8


class MaskPanel(Panel):
    """The panel: `measure(stream, implementation, setting, p, layers)` gives the `Case`, once for each combination.

    `setting` is torch's `preserve_rng_state`, or for the course's own checkpoint the name of its stage. `stream` is
    what the control of that name starts with; by default the first of `streams`.
    """

    def __init__(
        self,
        measure: Callable[[str, str, bool | str, float, int], Case],
        streams: Iterable[str],
        stream: str | None = None,
    ):
        streams = list(streams)
        self._measure, self._answers = measure, {}
        super().__init__(
            "The masks of both passes, where they differ, and the gradient error of each parameter",
            (756, 297),
            stream=choice("Masks are drawn from", streams, stream or streams[0]),
            implementation=choice("Implementation", IMPLEMENTATIONS, "non-reentrant"),
            preserve=choice("preserve_rng_state", [("on", True), ("off", False)], True),
            stage=choice("The own one replays", STAGES, STAGES[0]),
            p=choice("p (share dropped)", [(f"{tenths / 10}", tenths / 10) for tenths in range(10)], 0.5),
            layers=Number("Layers with dropout", 1, MOST_LAYERS, 4),
        )
        self.refresh()

    def answer(self, changed: str | None) -> tuple[bytes, str]:
        own = self.implementation.value == "the course's own"
        self.preserve.disabled, self.stage.disabled = own, not own  # values stay, for when they mean something again
        setting = self.stage.value if own else self.preserve.value
        key = (self.stream.value, self.implementation.value, setting, self.p.value, self.layers.value)
        if key not in self._answers:
            case = self._measure(*key)
            self._answers[key] = Canvas(masks_and_divergence(case), ()).png(), sentence(case)
        return self._answers[key]
