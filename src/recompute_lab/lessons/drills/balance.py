"""The balance loss: in the loss, and logged once."""

from __future__ import annotations

import torch

from recompute_lab.instruments.steps import plainly
from recompute_lab.lessons.drills.drill import Drill, Make
from recompute_lab.lessons.drills.training import alone
from recompute_lab.lessons.exercise import Wrong
from recompute_lab.specimens.drills.balance import Balanced


def must_do(make: Make) -> None:
    with alone(Balanced) as model:
        loss, balance = float(model.step(plainly)), model.logged
    rows = []
    with alone(make) as model:
        model.router.register_forward_pre_hook(lambda module, args: rows.append(args[0].shape[0]))
        ours = model.step(plainly)
        batch = len(model.rows)
    if sum(rows) != batch:
        raise Wrong(f"the router sees {sum(rows)} rows in a step, of a batch of {batch}: once each is enough.")
    if isinstance(ours, torch.Tensor) and abs(float(ours) - (loss - balance)) < 1e-4:
        raise Wrong("the balance loss is no longer in the loss: nobody keeps the experts' shares equal.")


DRILL = Drill(
    name="balance",
    title="A loss on the side",
    topic="state",
    level="onsite",
    minutes=10,
    faulty=Balanced,
    inside=lambda model: [model.first, model.second],
    must_do=must_do,
    state=lambda model: {"logged": model.logged},
    hints_say=(
        "Two questions: with what graph does the balance loss get into the loss, and what is in self.balance when "
        "it is logged? One implementation runs its forward without a graph.",
        "Non-reentrant: the loss is made before backward. What is added afterwards does not change it any more.",
    ),
    hints_mend=(
        "What leaves a segment otherwise than by return has no graph under reentrant, and leaves twice under both.",
        "Let mixed return two tensors, and step add up the second ones. experts(x, shares) can stay as it is.",
        "pairs = [run(self.mixed, self.stem(rows)) for rows in self.rows.chunk(2)], then loss and logged from those.",
    ),
    well="what is returned has a graph under both, and leaves once: the router is told, and each term is logged once.",
)
