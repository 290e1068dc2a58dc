"""Lesson 00's exercises, and its last word on the installation."""

from __future__ import annotations

from collections.abc import Callable

import torch

from recompute_lab.instruments.checkpointing import passes
from recompute_lab.instruments.grep import matches
from recompute_lab.instruments.ledger import record
from recompute_lab.instruments.memory import footprint
from recompute_lab.instruments.nondeterminism import Nudge
from recompute_lab.instruments.segments import in_segments
from recompute_lab.lessons.exercise import Exercises, Hints, Wrong
from recompute_lab.specimens.trunk import Trunk

check = Exercises()
hint = Hints(check)

# --- Ready? ------------------------------------------------------------------------------


def trunk_counts() -> tuple[int, int]:
    """Tensors that the course's trunk saves with a cap that never fires, and with one that does."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        x = torch.randn(2, 16, 32, requires_grad=True)
        idle, firing = (record(Trunk(limit=limit, caps_in_a_row=1), x) for limit in (1e6, 1e-6))
    return len(idle), len(firing)


# --- Exercise 1 --------------------------------------------------------------------------

LAYERS = 36


@check.add(
    "Backward works from the last segment to the first. Which inputs of segments are still held "
    "while the first segment is recomputed, and which while the last one is?",
    "While segment number j is recomputed, j inputs and the contents of that segment are held: "
    "j + length. Make that sum the same for all j.",
    "A last segment of 1 layer, the one before of 2, then 3, ... What do 1 + 2 + ... + 8 make?",
)
def lengths(answer) -> str:
    try:
        cut = [int(length) for length in answer]
    except TypeError:
        kind = type(answer).__name__
        raise Wrong(f"expected a list of lengths such as [12, 12, 12], got {kind}") from None
    if cut != list(answer) or min(cut, default=0) < 1 or sum(cut) != LAYERS:
        raise Wrong(
            f"the lengths must be whole numbers from 1 up that add up to {LAYERS} layers; "
            f"yours add up to {sum(answer)}."
        )
    even, yours = _activations([6] * 6), _activations(cut)
    if yours >= even:
        raise Wrong(
            f"the peak of your cut is {yours} activations, and {even} with six segments of six. "
            "Where do you hold many inputs and a long segment at the same time?"
        )
    return (
        f"the peak is {yours} activations, and {even} with six segments of six. Inputs are freed "
        "on the way back, so what comes last in backward, the first segments, can be longer. "
        "The square root is for equal segments: there are better cuts."
    )


def _activations(cut: list[int]) -> int:
    x = torch.ones(8, 8, requires_grad=True)
    return footprint(in_segments, [torch.sin] * LAYERS, cut, x).peak // x.nbytes


# --- Exercise 2 --------------------------------------------------------------------------


def guarded_clamp(x: torch.Tensor) -> torch.Tensor:
    """The segment that the exercise repairs."""
    if (x.abs() > 1.0).any():
        x = x.clamp(-1.0, 1.0)
    return x.sin()


@check.add(
    "What does clamp(-1, 1) do to a tensor that holds nothing beyond 1? Then what is the if for?",
    "Write the same two lines without the if. Nothing is to be read from the tensor.",
)
def unconditional(answer: Callable) -> str:
    inside, outside = torch.linspace(-0.9, 0.9, 8), torch.linspace(-3.0, 3.0, 8)
    mixed, on_the_edge = torch.linspace(-1.5, 1.5, 8), torch.linspace(-1.0, 1.0, 8)
    inputs = {"all within 1": inside, "mostly beyond 1": outside, "some beyond 1": mixed}
    for name, x in inputs.items():
        expected, found = _run(guarded_clamp, x), _run(answer, x)
        for what, a, b in zip(("numbers", "gradients"), expected, found, strict=True):
            if not torch.equal(a, b):
                raise Wrong(
                    f"for an input that is {name} your segment gives other {what} than the guarded "
                    "one. The repair must change nothing but the if."
                )
    counts = [len(record(answer, x.requires_grad_())) for x in (inside, outside)]
    if counts[0] != counts[1]:
        raise Wrong(
            f"your segment saves {counts[0]} tensors for an input within 1 and {counts[1]} for one "
            "beyond it: something in it still decides by the values whether to do an operation."
        )
    nudge = Nudge({1: 4})
    two = passes(nudge.counted(lambda x: answer(nudge(x))), on_the_edge.requires_grad_())
    if two.error is not None:
        raise Wrong(f"with noise on the threshold, checkpointing still stops it: {two.mismatch}")
    return (
        f"{counts[0]} saved tensors on either side of the threshold, equal numbers and gradients, "
        "and no error under noise: clamp is the identity where the guard would have skipped it."
    )


def _run(segment: Callable, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    x = x.detach().clone().requires_grad_()
    output = segment(x)
    if not isinstance(output, torch.Tensor) or not output.requires_grad:
        raise Wrong("your segment must return a tensor that depends on x; did you forget return?")
    (gradient,) = torch.autograd.grad(output.sum(), x)
    return output.detach(), gradient


# --- Exercise 3 --------------------------------------------------------------------------

LINES = {
    "A": "if update.norm() > limit:",
    "B": "# if gate.any(): leave out the expert",
    "C": "if gate.any(dim=-1):",
    "D": "elif overflow.item():",
    "E": "while error.max():",
    "F": "if self.training and bad.any():",
}
_WHY = {
    "A": "norm is not one of the seven names, and no colon follows the call",
    "B": "the grep reads text: a comment matches as well",
    "C": "there is something between the parentheses",
    "D": "an elif ends in if",
    "E": "there is no if, though a while branches just as well",
    "F": "what stands between if and the call does not matter",
}


@check.add(
    "The line must have: the letters if, white space, anything, a dot, one of any, all, item, sum, "
    "mean, max, min, and then exactly ():",
    "Meaning does not count. One of the lines found is not code at all.",
)
def found(answer) -> str:
    chosen = set(answer)
    if unknown := chosen - set(LINES):
        raise Wrong(f"write letters from A to F, as in 'AB'; got {', '.join(map(str, unknown))}")
    right = {letter for letter, line in LINES.items() if matches(line)}
    if wrong := sorted(chosen ^ right):
        letter = wrong[0]
        verb = "finds" if letter in right else "walks past"
        raise Wrong(f"{len(wrong)} of 6 judged wrongly. The grep {verb} {letter}: {_WHY[letter]}.")
    return "what it finds need not branch on a tensor, and what it walks past may."
