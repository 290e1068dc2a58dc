"""Lesson 01, the crash: the experiment that is repeated, and the exercises."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

import torch
from torch.nn import functional as F

from recompute_lab.instruments.checkpointing import Mismatch, weighted_sum
from recompute_lab.instruments.ledger import record
from recompute_lab.instruments.state import same_bits
from recompute_lab.lessons.exercise import Exercises, Hints, Wrong
from recompute_lab.specimens import guards
from recompute_lab.specimens.norm_cap import GuardedNormCap, RepairedNormCap
from recompute_lab.specimens.training import DigitRun

check = Exercises()
hint = Hints(check)


class CountingCap(RepairedNormCap):
    """The repaired cap with a counter inside, to show what becomes of it: every pass raises `calls`."""

    def __init__(self, limit: float):
        super().__init__(limit)
        self.calls = 0

    def forward(self, update: torch.Tensor, stream: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return super().forward(update, stream)


def repeat_step(run: DigitRun, state: dict, times: int) -> Counter:
    """Take the step that follows `state` again and again; how often it was "fine", or which kind of error it raised."""
    outcomes = Counter()
    for _ in range(times):
        run.load(state)
        error = run.train(1)
        outcomes["fine" if error is None else Mismatch.of(error).kind] += 1
    return outcomes


# --- Exercise 1: what common segments save

SEGMENTS: dict[str, tuple[Callable, tuple[int, ...]]] = {
    "x + y": (lambda x, y: x + y, (3, 3)),
    "x * y": (lambda x, y: x * y, (3, 3)),
    "x * 2": (lambda x, y: x * 2, (3, 3)),
    "x @ y": (lambda x, y: x @ y, (3, 3)),
    "relu(x)": (lambda x, y: F.relu(x), (3, 3)),
    "softmax(x)": (lambda x, y: x.softmax(-1), (3, 3)),
    "x * x * y": (lambda x, y: x * x * y, (3, 3)),
    "x.sum()": (lambda x, y: x.sum(), (3, 3)),
}


@check.add(
    "Backward of an operator needs what its derivative is made of. That of x + y is 1, that of x * y the other factor.",
    "A number that is not a tensor is not saved. softmax and relu are differentiated from their result: one tensor.",
    "x * x * y is two multiplications: first x * x, then that product times y. Both x and y require grad.",
)
def predict_saved(prediction: Mapping[str, int]) -> str:
    """Each prediction is held against the ledger of the installed torch."""
    unknown = [name for name in prediction if name not in SEGMENTS]
    absent = [name for name in SEGMENTS if name not in prediction]
    if unknown or absent:
        raise Wrong(f"predict these segments, under these names: {', '.join(SEGMENTS)}")
    off = []
    for name, (segment, shape) in SEGMENTS.items():
        x, y = (torch.ones(shape).add(i).requires_grad_() for i in (1, 2))
        saved = len(record(segment, x, y))
        if prediction[name] != saved:
            off.append(f"{name} saves {saved}, you said {prediction[name]}")
    if off:
        raise Wrong("; ".join(off) + ". Ask of each: which tensors does its derivative contain?")
    return "all counts are what this torch saves. What an operator saves follows from its derivative alone."


# --- Exercises 2 and 3: the same numbers without the decision


def _must_be_the_identity(answer: Callable, original: Callable, inputs: Mapping[str, tuple]) -> None:
    """Raise Wrong unless `answer` equals `original` in every output and gradient bit, and always saves equally much."""
    counts = {}
    for name, arguments in inputs.items():
        made, expected = (_run(function, arguments) for function in (answer, original))
        for part in ("output", "gradient"):
            if made[part] is None:
                raise Wrong(f"for {name}, the {part} is missing: return a tensor that depends on the first argument")
            if not same_bits(made[part], expected[part]):
                gap = (made[part] != expected[part]).sum().item() if made[part].shape == expected[part].shape else "all"
                raise Wrong(
                    f"for {name}, the {part} should be the guarded form's bit for bit; {gap} elements differ. "
                    "Where the condition is false, the operation must be the identity"
                )
        first, *others = arguments
        counts[name] = len(record(answer, first.clone().requires_grad_(), *others))
    if len(set(counts.values())) > 1:
        told = ", ".join(f"{saved} for {name}" for name, saved in counts.items())
        raise Wrong(f"the values are right, but the number of saved tensors still depends on them: {told}")


def _run(function: Callable, arguments: tuple) -> dict[str, torch.Tensor | None]:
    first, *others = (a.detach().clone() if isinstance(a, torch.Tensor) else a for a in arguments)
    first.requires_grad_()
    output = function(first.clone(), *others)
    if not isinstance(output, torch.Tensor) or not output.requires_grad:
        return {"output": output if isinstance(output, torch.Tensor) else None, "gradient": None}
    finite = torch.where(output.isfinite(), output, 0.0)
    weighted_sum(finite).backward()
    return {"output": output.detach(), "gradient": first.grad}


def _cap(update, stream, limit):
    return GuardedNormCap(limit)(update, stream)


def _vectors(longest: float) -> tuple[torch.Tensor, torch.Tensor, float]:
    """Updates of lengths up to `longest` for a stream of length 1 and a limit of 1: [4, 3, 8] each."""
    generator = torch.Generator().manual_seed(0)
    update, stream = (F.normalize(torch.randn(4, 3, 8, generator=generator), dim=-1) for _ in range(2))
    lengths = torch.linspace(0.1, longest, 12).view(4, 3, 1)
    return update * lengths, stream, 1.0


@check.add(
    "Where the cap does not bite, the scale is exactly 1.0. What does a multiplication by 1.0 change?",
    "Keep the arithmetic under no_grad, including the clamp; drop the `if`, not the multiplication.",
    "return update * scale.unsqueeze(-1).to(update.dtype)",
)
def repair_cap(answer: Callable) -> str:
    """`answer(update, stream, limit)` must equal the guarded cap and save equally much for every pattern of hits."""
    patterns = {"no vector capped": _vectors(0.9), "one capped": _vectors(1.05), "many capped": _vectors(3.0)}
    patterns["all capped"] = tuple(part * 40 if i == 0 else part for i, part in enumerate(_vectors(3.0)))
    _must_be_the_identity(answer, _cap, patterns)
    return "equal to the guarded cap bit for bit, and the same number of saved tensors whatever the values."


def _with(tensor: torch.Tensor, index: int, value: float) -> torch.Tensor:
    tensor = tensor.clone()
    tensor.view(-1)[index] = value
    return tensor


_SMALL = torch.linspace(-1, 1, 12).view(3, 4)


@check.add(
    "The condition asked whether any element is outside. Ask each element instead, and keep the answer as a tensor.",
    "Inside the bounds, clamp is the identity. On a bound, its gradient is 1 up to torch 2.13 and 0 in 2.14.",
    "torch.where(x.abs() > bound, x.clamp(-bound, bound), x)",
)
def unguard_clip(answer: Callable) -> str:
    """`answer(x, bound)` against `clip_when_needed`."""
    inputs = {
        "nothing to clip": (_SMALL, 2.0),
        "one element to clip": (_with(_SMALL, 5, -7.0), 2.0),
        "all to clip": (_SMALL + 9, 2.0),
    }
    inputs["an element on the bound"] = (_with(_SMALL, 0, 2.0), 2.0)
    _must_be_the_identity(answer, guards.clip_when_needed, inputs)
    return "where nothing is outside, every element and its gradient pass through; no permission is needed."


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
    }
    _must_be_the_identity(answer, guards.zero_nans_when_present, inputs)
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
    _must_be_the_identity(answer, guards.mask_when_any, inputs)
    return "an empty mask is the identity; the graph no longer asks what is in it."
