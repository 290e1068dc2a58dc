"""The residual in place: nothing to do but the same sum."""

from __future__ import annotations

from recompute_lab.lessons.drills.drill import Drill, Make
from recompute_lab.specimens.drills.residual import Residual


def must_do(make: Make) -> None:
    """The plain run, bit for bit, is all that is asked."""


DRILL = Drill(
    name="residual",
    title="A residual, in place",
    topic="arguments",
    level="screen",
    minutes=5,
    faulty=Residual,
    inside=lambda model: [model.block],
    must_do=must_do,
    hints_say=(
        "Autograd lets you write over a tensor as long as nobody needs its old values. Who needs those of x: the "
        "stem's layer, the sum in update? And who, once update is checkpointed?",
        "To run a segment again takes its argument. Autograd's own guard watches over what is kept for backward.",
    ),
    hints_mend=(
        "The tensor that was given to the segment must be the same, values and all, when backward runs.",
        "The sum is a tensor of its own: x = x + ...",
    ),
    well="the argument is left alone; its memory was needed all the same, for the second run.",
)
