"""The kept weight: computed once in a step, anew in the next."""

from __future__ import annotations

import torch

from recompute_lab.instruments.steps import plainly
from recompute_lab.lessons.drills.drill import Drill, Make
from recompute_lab.lessons.drills.training import alone, near
from recompute_lab.lessons.exercise import Wrong
from recompute_lab.specimens.drills.memo import Standardised


def must_do(make: Make) -> None:
    calls = []
    with alone(make) as model:
        original = model.standardised

        def standardised(*args):
            calls.append(1)
            return original(*args)

        model.standardised = standardised
        model.step(plainly)
    if not calls:
        raise Wrong("self.standardised() is not called: let it make the weight.")
    if len(calls) > 1:
        raise Wrong(f"the weight is standardised {len(calls)} times in a step: once was what the cache was for.")
    loss = loss_of_twice(make)
    if isinstance(loss, torch.Tensor) and not near(loss, loss_of_twice(Standardised)):
        raise Wrong("self.standardised() is called, but the layers do not use what it gives: they make a weight anew.")


def loss_of_twice(make: Make) -> torch.Tensor:
    """The loss with a standardised weight that is twice as long."""
    with alone(make) as model:
        model.standardised = lambda *args: 2 * Standardised.standardised(model)
        return model.step(plainly)


DRILL = Drill(
    name="memo",
    title="Computed once, and kept",
    topic="state",
    level="onsite",
    minutes=10,
    faulty=Standardised,
    inside=lambda model: [model.out],
    must_do=must_do,
    hints_say=(
        "The first micro-batch makes the weight, in its segment. What does its recomputation find in self.kept?",
        "Reentrant's forward runs without gradients: does what it keeps have a graph? And non-reentrant: how many "
        "tensors does the second run of the first segment save?",
    ),
    hints_mend=(
        "Four segments share a tensor: so none of them should make it.",
        "step makes the weight, once, outside of all segments, and each segment is given it as an argument.",
        "weight = self.standardised(), then run(self.layer, self.stem(rows), weight) for each micro-batch.",
    ),
    well="one standardisation for four micro-batches, and the weight has its gradient.",
)
