"""Each depth has a row of the embedding."""

from __future__ import annotations

from recompute_lab.instruments.steps import plainly
from recompute_lab.lessons.drills.drill import Drill, Make
from recompute_lab.lessons.drills.training import alone
from recompute_lab.lessons.exercise import Wrong
from recompute_lab.specimens.drills.depth import Repeated


def must_do(make: Make) -> None:
    with alone(make) as model:
        model.step(plainly)
        told = model.depths.grad is not None and model.depths.grad.any(dim=1)
    if told is False or not told.all():
        raise Wrong("not every row of the embedding gets a gradient in the plain run: each depth should have its own.")


DRILL = Drill(
    name="depth",
    title="One block, four depths",
    topic="another world",
    level="screen",
    minutes=7,
    faulty=Repeated,
    inside=lambda model: [model.block],
    must_do=must_do,
    hints_say=(
        "When backward runs, the loop is over. What is self.depth then, for each of the four recomputations?",
        "All four rows of the embedding have one shape. Does anything raise?",
    ),
    hints_mend=(
        "Checkpointing keeps a segment's arguments for its second run, not what the segment finds elsewhere.",
        "Let layer take the depth as an argument, and give it to run(): numbers are kept, too.",
    ),
    well="what depends on the depth is kept with x, and each row of the embedding has the gradient of its own depth.",
)
