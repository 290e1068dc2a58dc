"""A validation in the middle of a step: still made, in evaluation mode, and the normalisation stays frozen."""

from __future__ import annotations

import torch

from recompute_lab.instruments.steps import plainly
from recompute_lab.lessons.drills.drill import Drill, Make
from recompute_lab.lessons.drills.training import alone
from recompute_lab.lessons.exercise import Wrong
from recompute_lab.specimens.drills.probe import Probed


def must_do(make: Make) -> None:
    """In a validation nothing is in training mode; in the step itself the encoder is, and `norm` is not."""
    validating, training = [], []
    with alone(make) as model:

        def look(module, args):
            frozen = torch.nn.BatchNorm1d  # by its kind: the validation may run a copy of the encoder
            norms, others = (
                [p.training for p in module if isinstance(p, frozen) == is_one] for is_one in (True, False)
            )
            modes = others, any(norms)
            (training if torch.is_grad_enabled() else validating).append(modes)

        model.encoder.register_forward_pre_hook(look)
        model.step(plainly)
        norm = model.norm
        moved = int(norm.num_batches_tracked)
    if not validating:
        raise Wrong("the validation is gone: the step should leave its loss in self.validation, computed without grad.")
    if any(any(parts) or frozen for parts, frozen in validating):
        raise Wrong("the validation is not made in evaluation mode: the first dropout in the encoder will show it.")
    if any(frozen for _, frozen in training) or moved:
        raise Wrong("the normalisation is not in evaluation mode in the step: its pretrained statistics move.")
    if not all(all(parts) for parts, _ in training):
        raise Wrong("the rest of the encoder should be in training mode when it trains.")


DRILL = Drill(
    name="probe",
    title="A look at validation",
    topic="another world",
    level="onsite",
    minutes=10,
    faulty=Probed,
    inside=lambda model: [model.encoder[0], model.norm, model.encoder[3]],
    must_do=must_do,
    state=lambda model: {
        "validation": model.validation,
        "norm.running_mean": model.norm.running_mean,
        "norm.running_var": model.norm.running_var,
    },
    hints_say=(
        "validated() ends with self.train(), for all modules. In which mode is norm when backward runs?",
        "In training mode it normalises by the batch, and saves the batch's mean and deviation for backward. In "
        "evaluation mode there are none to save: tensors of another shape.",
    ),
    hints_mend=(
        "The recomputation has to find the modes that the forward found. Nobody says when validation has to be made.",
        "Two ways: put back each module's own mode, not the model's; or look when backward is over, with the same "
        "weights, before the optimizer.",
        "Move self.validation = self.validated() behind loss.backward(); or, in validated, note [m.training for m in "
        "self.modules()] and set each again.",
    ),
    well="validation is made, in evaluation mode, of the same weights; the recomputation finds the forward's modes.",
)
