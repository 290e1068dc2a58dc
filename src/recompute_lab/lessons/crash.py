"""Lesson 01, the crash: the experiment that is repeated, and the exercises."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

import torch
from torch.nn import functional as F

from recompute_lab.instruments.checkpointing import Mismatch
from recompute_lab.instruments.ledger import record
from recompute_lab.lessons.exercise import Exercises, Hints, Wrong, whole
from recompute_lab.lessons.repairs import must_equal
from recompute_lab.specimens import guards
from recompute_lab.specimens.norm_cap import GuardedNormCap
from recompute_lab.specimens.training import DigitRun

check = Exercises()
hint = Hints(check)


def repeat_step(run: DigitRun, state: dict, times: int) -> Counter:
    """Take the step that follows `state` again and again; how often it was "fine", or which kind of error it raised."""
    outcomes = Counter()
    for _ in range(times):
        run.load(state)
        error = run.train(1)
        outcomes["fine" if error is None else Mismatch.of(error).kind] += 1
    return outcomes


# --- Exercise 1: what common segments save

SEGMENTS: dict[str, Callable] = {
    "x + y": lambda x, y: x + y,
    "x * y": lambda x, y: x * y,
    "x * 2": lambda x, y: x * 2,
    "x @ y": lambda x, y: x @ y,
    "relu(x)": lambda x, y: F.relu(x),
    "softmax(x)": lambda x, y: x.softmax(-1),
    "x * x * y": lambda x, y: x * x * y,
    "x.sum()": lambda x, y: x.sum(),
}


@check.add(
    "Backward of an operator needs what its derivative is made of. That of x + y is 1, that of x * y the other factor.",
    "A plain number is no saved tensor. softmax and relu are differentiated from their result: one tensor.",
    "x * x * y is two multiplications: first x * x, then that product times y. Both x and y require grad.",
)
def predict_saved(prediction: Mapping[str, int]) -> str:
    """Each prediction is held against the ledger of the installed torch."""
    if not isinstance(prediction, Mapping) or set(prediction) != set(SEGMENTS):
        raise Wrong(f"predict these segments, under these names: {', '.join(SEGMENTS)}")
    off = []
    x, y = (torch.full((3, 3), value, requires_grad=True) for value in (2.0, 3.0))
    for name, segment in SEGMENTS.items():
        saved = len(record(segment, x, y))
        if (said := whole(prediction[name])) != saved:
            off.append(f"{name} saves {saved}, you said {said}")
    if off:
        raise Wrong("; ".join(off) + ". Ask of each: which tensors does its derivative contain?")
    return "all counts are what this torch saves: what the derivative is made of, for the inputs that require grad."


# --- Exercises 2 and 3: the same numbers without the decision


def _cap(update, stream, limit):
    return GuardedNormCap(limit)(update, stream)


def _vectors(longest: float, limit: float = 1.0, *shape: int) -> tuple[torch.Tensor, torch.Tensor, float]:
    """Updates of lengths up to `longest` times what the limit allows, and streams of various lengths."""
    generator = torch.Generator().manual_seed(0)
    update, stream = (F.normalize(torch.randn(shape or (4, 3, 8), generator=generator), dim=-1) for _ in range(2))
    lengths = torch.linspace(0.1, longest, update[..., 0].numel()).view(*update.shape[:-1], 1)
    widths = lengths.flip(0) + 0.5
    return update * lengths * widths * limit, stream * widths, limit


@check.add(
    "Where the cap does not bite, the scale is exactly 1.0. What does a multiplication by 1.0 change?",
    "Keep the arithmetic under no_grad, including the clamp; drop the `if`, not the multiplication.",
    "return update * scale.unsqueeze(-1).to(update.dtype)",
)
def repair_cap(answer: Callable) -> str:
    """`answer(update, stream, limit)` must equal the guarded cap and save equally much for every pattern of hits."""
    patterns = {"no vector capped": _vectors(0.9), "one capped": _vectors(1.05), "many capped": _vectors(3.0)}
    for name, factor in (("all capped", 40.0), ("all far above the cap", 1e6), ("all far below the cap", 1e-6)):
        update, stream, limit = _vectors(3.0)
        patterns[name] = (update * factor, stream, limit)
    patterns |= {"another limit, none capped": _vectors(0.9, 0.3), "another limit, many capped": _vectors(3.0, 0.3)}
    patterns |= {"a matrix, none capped": _vectors(0.9, 1.0, 5, 6), "a matrix, many capped": _vectors(3.0, 1.0, 5, 6)}
    for name, longest in (("bfloat16, none capped", 0.9), ("bfloat16, many capped", 3.0)):
        update, stream, limit = _vectors(longest, 1.0, 2, 3, 8)
        patterns[name] = (update.bfloat16(), stream.bfloat16(), limit)
    must_equal(answer, _cap, patterns)
    return "equal to the guarded cap bit for bit, and the same number of saved tensors whatever the values."


def _with(tensor: torch.Tensor, index: int, value: float) -> torch.Tensor:
    tensor = tensor.clone()
    tensor.view(-1)[index] = value
    return tensor


_SMALL = torch.linspace(-1, 1, 12).view(3, 4)


@check.add(
    "The condition asked whether any element is outside. The clamp asks each one.",
    "Inside the bounds, clamp is the identity, and so is its gradient.",
)
def unguard_clip(answer: Callable) -> str:
    """`answer(x, bound)` against `clip_when_needed`."""
    inputs = {
        "nothing to clip": (_SMALL, 2.0),
        "one element to clip": (_with(_SMALL, 5, -7.0), 2.0),
        "all to clip": (_SMALL + 9, 2.0),
    }
    # No element lies on the bound: what clamp's gradient is there, versions of torch do not agree on.
    inputs["a NaN and nothing to clip"] = (_with(_SMALL, 0, float("nan")), 2.0)
    inputs["another bound"] = (_SMALL, 0.5)
    inputs["a vector"] = (_SMALL.view(-1) * 3, 1.5)
    must_equal(answer, guards.clip_when_needed, inputs)
    return (
        "inside its bounds, clamp is the identity and needs no permission. (On a bound, its gradient depends on torch.)"
    )


@check.add(
    "torch.where chooses element by element, and chooses x where there is no NaN.",
    "Look at an input that holds an infinity and no NaN: it must come out as it went in. torch.nan_to_num changes it.",
)
def unguard_nans(answer: Callable) -> str:
    """`answer(x)` against `zero_nans_when_present`."""
    inputs = {
        "no NaN": (_SMALL,),
        "one NaN": (_with(_SMALL, 3, float("nan")),),
        "an infinity and no NaN": (_with(_SMALL, 3, float("inf")),),
        "an infinity and a NaN": (_with(_with(_SMALL, 3, float("inf")), 7, float("nan")),),
        "minus infinity and a NaN": (_with(_with(_SMALL, 3, float("-inf")), 7, float("nan")),),
        "a vector": (_with(_SMALL, 5, float("nan")).view(-1),),
    }
    must_equal(answer, guards.zero_nans_when_present, inputs)
    return "the choice moved from the program into a tensor, element by element; infinities stay."


@check.add(
    "masked_fill with a mask that is false everywhere changes nothing.",
    "Multiplying by the mask differs: 0 times infinity is NaN. Adding a large negative number is not minus infinity.",
)
def unguard_mask(answer: Callable) -> str:
    """`answer(scores, hidden)` against `mask_when_any`."""
    nobody, one, everybody = torch.zeros(3, 4).bool(), _with(torch.zeros(3, 4), 6, 1.0).bool(), torch.ones(3, 4).bool()
    inputs = {"nothing hidden": (_SMALL, nobody), "one hidden": (_SMALL, one), "all hidden": (_SMALL, everybody)}
    inputs["an infinite score that is hidden"] = (_with(_SMALL, 6, float("inf")), one)
    inputs["a vector"] = (_SMALL.view(-1), one.view(-1))
    must_equal(answer, guards.mask_when_any, inputs)
    return "an empty mask is the identity; the graph no longer asks what is in it."
