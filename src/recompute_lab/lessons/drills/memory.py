"""The encoder's output: an argument, and computed once."""

from __future__ import annotations

from recompute_lab.instruments.steps import plainly
from recompute_lab.lessons.drills.drill import Drill, Make
from recompute_lab.lessons.drills.training import alone
from recompute_lab.lessons.exercise import Wrong
from recompute_lab.specimens.drills.memory import Translator


def must_do(make: Make) -> None:
    calls = []
    with alone(make) as model:
        model.encoder.register_forward_pre_hook(lambda *_: calls.append(1))
        model.step(plainly)
    if len(calls) != 1:
        raise Wrong(f"the encoder runs {len(calls)} times in a step: the source is to be encoded once, for all layers.")


DRILL = Drill(
    name="memory",
    title="What the decoder looks at",
    topic="cut off",
    level="onsite",
    minutes=10,
    faulty=Translator,
    inside=lambda model: list(model.queries),
    must_do=must_do,
    hints_say=(
        "memory is no argument, but it has a graph behind it: the encoder's. Non-reentrant keeps the forward's graph, "
        "in which that is in its place.",
        "Reentrant goes backward once for each segment, at once and to the end, through all that hangs on what it "
        "finds. What has the first of them freed when the second one comes?",
    ),
    hints_mend=(
        "Reentrant cuts its arguments off from the graph outside, and carries their gradients over. It does so for "
        "arguments only.",
        "Give memory to the segment as an argument. To detach it stops the error, and the encoder no longer learns.",
    ),
    well="the encoder runs once, and its graph is gone through once, with the gradients of both layers.",
)
