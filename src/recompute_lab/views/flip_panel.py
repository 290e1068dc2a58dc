"""Choose a branch, a direction and a way to checkpoint: what fills the slots, and what it does to the gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from recompute_lab.instruments.checkpointing import Strategy
from recompute_lab.views.canvas import Canvas
from recompute_lab.views.panel import Panel, choice
from recompute_lab.views.slots import Case, sentence, slots

_IMPLEMENTATIONS = {"non-reentrant": False, "reentrant": True}


class FlipPanel(Panel):
    """The panel: `measure(branch, direction, strategy)` gives the `Case`, once for each combination.

    `chosen` is what the controls start with: a branch and a direction; by default the first of each.
    """

    def __init__(
        self,
        measure: Callable[[str, str, Strategy], Case],
        branches: Iterable[str],
        directions: Iterable[str],
        chosen: tuple[str, str] | None = None,
    ):
        branches, directions = list(branches), list(directions)
        branch, direction = chosen or (branches[0], directions[0])
        self._measure, self._answers = measure, {}
        super().__init__(
            "The slots of both passes, and the gradient error of each parameter",
            (756, 486),
            branch=choice("Branch", branches, branch),
            direction=choice("The guard says", directions, direction),
            implementation=choice("Implementation", _IMPLEMENTATIONS, "non-reentrant"),
            early_stop=choice("Early stop", [("on", True), ("off", False)], True),
            check=choice("Determinism check", ("default", "none"), "default"),
        )
        self.refresh()

    def answer(self, changed: str | None) -> tuple[bytes, str]:
        reentrant = _IMPLEMENTATIONS[self.implementation.value]
        for control in (self.early_stop, self.check):
            control.disabled = reentrant  # its value stays, for when it means something again
        flags = (True, "default") if reentrant else (self.early_stop.value, self.check.value)
        key = (self.branch.value, self.direction.value, reentrant, *flags)
        if key not in self._answers:
            strategy = Strategy(self.implementation.value, reentrant, *flags)
            case = self._measure(self.branch.value, self.direction.value, strategy)
            self._answers[key] = Canvas(slots(case), ()).png(), sentence(case)
        return self._answers[key]
