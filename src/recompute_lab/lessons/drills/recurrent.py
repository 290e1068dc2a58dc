"""A weight made of parameters: once for each segment at most, and no cache left open."""

from __future__ import annotations

from torch.nn.utils import parametrize

from recompute_lab.instruments.steps import plainly
from recompute_lab.lessons.drills.drill import Drill, Make
from recompute_lab.lessons.drills.training import alone
from recompute_lab.lessons.exercise import Wrong
from recompute_lab.specimens.drills.recurrent import Recurrent


def must_do(make: Make) -> None:
    calls = []
    with alone(make) as model:
        if not parametrize.is_parametrized(model.outer, "weight"):
            raise Wrong("the weight is no longer made of parameters: its rows should be scaled to length 1.")
        unit = model.outer.parametrizations["weight"][0]
        unit.register_forward_pre_hook(lambda *_: calls.append(1))
        before = parametrize._cache_enabled
        model.step(plainly)
        left_open = parametrize._cache_enabled > before  # it is closed when the model, which holds it, goes
    if left_open:
        raise Wrong("the step enters parametrize.cached() and does not leave it: use `with parametrize.cached():`.")
    if not calls:
        raise Wrong("the rows are no longer scaled to length 1: with the parametrization, its use is gone.")
    if len(calls) > 2:
        raise Wrong(f"the weight is computed {len(calls)} times in a step: once for each of two segments is enough.")


DRILL = Drill(
    name="recurrent",
    title="torch's own cache",
    topic="another world",
    level="staff",
    minutes=15,
    faulty=Recurrent,
    inside=lambda model: [model.inner],
    must_do=must_do,
    hints_say=(
        "Where does the first segment's forward compute the weight, where does the second's? And the recomputations, "
        "which run when `with` is over?",
        "Reentrant differentiates what its second run does, and that computes the same numbers, only more often. "
        "Non-reentrant wants the tensors that the first run saved, one after the other, each of its shape.",
    ),
    hints_mend=(
        "In both passes the cache must be as empty, and as open. What belongs to both passes stands in the segment.",
        "Enter parametrize.cached() in some, around its loop: once for each segment and pass.",
        "Or make the weight in step and give it to the segments: run(self.some, h, part, self.outer.weight).",
    ),
    well="each pass opens a cache of its own, or is given the weight: both do the same, and compute it once.",
)
