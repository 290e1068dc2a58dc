"""Noise from NumPy: is what takes its place noise of the same kind, fresh in every step, and in training only?"""

from __future__ import annotations

import torch

from recompute_lab.instruments.state import same_bits
from recompute_lab.instruments.steps import plainly
from recompute_lab.instruments.streams import seed_everything
from recompute_lab.lessons.drills.drill import Drill, Make
from recompute_lab.lessons.drills.training import alone
from recompute_lab.lessons.exercise import Wrong
from recompute_lab.specimens.drills.jitter import Jittered

STEPS = 40  # 20,480 numbers: what is asked of their mean and spread lies four standard errors and more away


def without_noise(model: Jittered) -> None:
    model.strength = 0.0


def noise_of(make: Make, strength: float) -> torch.Tensor:
    """What arrives at the block on top of the stem's output, [STEPS, 32, 16], in training mode."""
    stems, inputs = [], []
    with alone(make) as model:
        model.strength = strength
        model.stem.register_forward_hook(lambda module, args, output: stems.append(output.detach().clone()))
        model.block.register_forward_pre_hook(lambda module, args: inputs.append(args[0].detach().clone()))
        for step in range(STEPS):
            seed_everything(step)
            model.step(plainly)
    if not len(stems) == len(inputs) == STEPS:
        raise Wrong("stem and block should run once each in a step without checkpointing.")
    return torch.stack(inputs) - torch.stack(stems)


def must_do(make: Make) -> None:
    noise = noise_of(make, 0.5)
    if not noise.count_nonzero():
        raise Wrong("no noise arrives at the block in training: with the noise, its use is gone.")
    if same_bits(noise[0], noise[1]):
        raise Wrong("the noise is the same in every step: the network learns to live with one fixed offset.")
    if min(noise[0].std(0).min(), noise[0].std(1).min()) < 0.1:
        raise Wrong("whole rows or columns have one number in common: each element has noise of its own.")
    mean, spread = float(noise.mean()), float(noise.std())
    if abs(mean) > 0.02:
        raise Wrong(f"the noise has the mean {mean:.2f}: it should be 0.")
    if abs(spread / 0.5 - 1) > 0.05:
        raise Wrong(f"with strength 0.5 the noise has the standard deviation {spread:.2f}.")
    within = float((noise.abs() < 0.5).float().mean())
    if abs(within - 0.683) > 0.02:
        raise Wrong(f"of normal noise 68% lies within one standard deviation; of yours {within:.0%} does.")


DRILL = Drill(
    name="jitter",
    title="Noise as augmentation",
    topic="randomness",
    level="screen",
    minutes=5,
    faulty=Jittered,
    inside=lambda model: [model.block],
    must_do=must_do,
    ordinary=(("evaluation mode", lambda model: model.eval()), ("strength 0", without_noise)),
    hints_say=(
        "Both implementations put torch's own streams back before the recomputation. Whose stream is this one?",
        "Other noise in the second pass: does that change how many tensors are saved, or of which shape?",
    ),
    hints_mend=(
        "Either both passes are given one noise, or the noise comes from a stream that is put back.",
        "torch.randn_like(x) draws from torch's default generator. No line of the step has to change.",
    ),
    well="normal noise of the right strength, new in every step, none in evaluation, and both passes see the same.",
)
