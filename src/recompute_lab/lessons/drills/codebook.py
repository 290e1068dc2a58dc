"""A codebook that follows, in training; in evaluation it rests."""

from __future__ import annotations

from recompute_lab.instruments.state import same_bits
from recompute_lab.instruments.steps import plainly
from recompute_lab.lessons.drills.drill import Drill, Make
from recompute_lab.lessons.drills.training import alone
from recompute_lab.lessons.exercise import Wrong
from recompute_lab.specimens.drills.codebook import Quantised


def must_do(make: Make) -> None:
    with alone(make) as model:
        before = model.codes.clone()
        model.step(plainly)
        if same_bits(model.codes, before):
            raise Wrong("after a step in training the codes are where they were: they no longer follow.")
        if model.codes.requires_grad:
            raise Wrong(
                "the codes have become part of a graph: give follow() detached values, or call it under no_grad."
            )


DRILL = Drill(
    name="codebook",
    title="A codebook that follows",
    topic="state",
    level="onsite",
    minutes=12,
    faulty=Quantised,
    inside=lambda model: [model.encoder, model.decoder],
    must_do=must_do,
    state=lambda model: {"codes": model.codes},
    ordinary=(("", lambda model: None), ("evaluation mode", lambda model: model.eval())),
    hints_say=(
        "The forward reads the codes, then moves them. What does the second run read?",
        "Other codes: of which shape? And how often have they moved when the step is over?",
    ),
    hints_mend=(
        "It reads before it writes: not to write in the second run would be too late, since that reads what the first "
        "one wrote. The write has to leave the segment.",
        "What follow needs, z and nearest, may leave by return, and step calls it when backward is over: in training.",
        "Or follow only notes what it is to do, self.due = z, nearest: to note the same twice does no harm. step does "
        "it, super().follow(*self.due), when backward is over.",
    ),
    well="the codes move once, as in the plain run; both passes read what the forward read; in evaluation they rest.",
)
