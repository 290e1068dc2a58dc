"""A locked mask: one for all steps of a sequence, another one in each training step."""

from __future__ import annotations

import torch
from torch.nn.functional import linear

from recompute_lab.instruments.state import same_bits
from recompute_lab.instruments.steps import plainly
from recompute_lab.instruments.streams import seed_everything
from recompute_lab.lessons.drills.drill import Drill, Make
from recompute_lab.lessons.drills.training import alone
from recompute_lab.lessons.exercise import Wrong
from recompute_lab.specimens.drills.locked import Locked

STEPS, LENGTH = 100, 8


def factors(make: Make, p: float) -> torch.Tensor:
    """What h is multiplied by before `outer` sees it, [STEPS, LENGTH, 4, 16], in training mode."""
    seen, states = [], []
    with alone(make) as model:
        model.p = p
        model.outer.register_forward_pre_hook(lambda module, args: seen.append(args[0].detach().clone()))
        model.inner.register_forward_hook(lambda module, args, output: states.append(output.detach().clone()))
        outer, start = model.outer, model.start.detach()
        for step in range(STEPS):
            seed_everything(step)
            model.step(plainly)
        if not len(seen) == len(states) == STEPS * LENGTH:
            raise Wrong("each of a sequence's eight vectors should go through inner and outer once.")
        with torch.no_grad():
            after = [torch.tanh(i + linear(h, outer.weight, outer.bias)) for i, h in zip(states, seen, strict=True)]
    before = [start if i % LENGTH == 0 else after[i - 1] for i in range(len(seen))]
    return (torch.stack(seen) / torch.stack(before)).view(STEPS, LENGTH, 4, 16)


def must_do(make: Make) -> None:
    masks = factors(make, 0.25)
    dropped = masks == 0
    if not dropped.any():
        raise Wrong("nothing is dropped in training: with the mask, its use is gone.")
    if not (dropped == dropped[:, :1]).all():
        raise Wrong("within one step of training, a sequence has more than one mask: it should keep one to its end.")
    if same_bits(dropped[0], dropped[1]):
        raise Wrong("the mask is the same in every step of training: so many columns are missing for good.")
    if bool((dropped[:, 0] == dropped[:, 0, :1]).all()):
        raise Wrong("the four sequences share a mask: each has one of its own.")
    share, mean = float(dropped[:, 0].float().mean()), float(masks[:, 0].mean())
    if abs(share - 0.25) > 0.025:
        raise Wrong(f"with p = 0.25 a share of {share:.2f} is dropped.")
    if abs(mean - 1) > 0.035:
        raise Wrong(f"the mask's mean is {mean:.2f}, so evaluation sees other values than training: divide by 1 - p.")


DRILL = Drill(
    name="locked",
    title="A mask that both passes agree on",
    topic="randomness",
    level="screen",
    minutes=8,
    faulty=Locked,
    inside=lambda model: [model.inner, model.outer],
    must_do=must_do,
    ordinary=(("evaluation mode", lambda model: model.eval()),),
    hints_say=(
        "Replayable is one question: does the second pass do what the first one did? Take that one first.",
        "The other question is what the mask is for. Which one is drawn in the next step, and in the one after?",
    ),
    hints_mend=(
        "Draw from torch's stream without seeding it. But there are two segments, and each sequence wants one mask.",
        "What two segments share, their caller makes: draw the mask in step, once, and hand it to both.",
        "h = run(self.through, h, part, mask), with mask = self.mask(h) above the loop.",
    ),
    well="one mask for a sequence, another one in the next step, and torch's stream is nobody's to seed.",
)
