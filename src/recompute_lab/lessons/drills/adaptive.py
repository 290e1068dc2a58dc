"""A weight from gradients: the last layer has to be where its gradient is asked for."""

from __future__ import annotations

import torch

from recompute_lab.instruments.steps import plainly
from recompute_lab.lessons.drills.drill import Drill, Make
from recompute_lab.lessons.drills.training import alone
from recompute_lab.lessons.exercise import Wrong
from recompute_lab.specimens.drills.adaptive import Weighed


def must_do(make: Make) -> None:
    shares = []
    for strength in (1, 2):
        with alone(make) as model, torch.no_grad():
            model.critic.weight *= strength
            with torch.enable_grad():
                model.step(plainly)
            if not hasattr(model, "share"):
                raise Wrong("the step leaves no self.share: that is how the losses are weighed.")
            shares.append(float(model.share))
    if shares[0] == shares[1]:
        raise Wrong("share is the same for a critic with twice the gradient: the losses are no longer weighed.")


DRILL = Drill(
    name="adaptive",
    title="Two losses, weighed",
    topic="cut off",
    level="staff",
    minutes=12,
    faulty=Weighed,
    inside=lambda model: [model.block],
    must_do=must_do,
    state=lambda model: {"share": model.share},
    hints_say=(
        "torch.autograd.grad goes through the graph from the loss to one tensor. Is last.weight in the graph of the "
        "outside, where a segment is one operation of its tensor arguments?",
        "Non-reentrant keeps the forward's graph, weights and all. It recomputes for each backward that comes by.",
    ),
    hints_mend=(
        "The gradient of the last layer needs nothing of what stands before it but its input.",
        "What is asked about must not be in the segment: checkpoint the block, and let last run outside.",
        "y = self.last(run(self.block, self.stem(self.rows)))",
    ),
    well="the question ends at the last layer, and does not come to the segment.",
)
