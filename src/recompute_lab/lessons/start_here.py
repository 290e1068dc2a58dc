"""Lesson 00's exercises, and its last word on the installation."""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Mapping, Set
from itertools import islice

import torch

from recompute_lab.instruments.checkpointing import passes
from recompute_lab.instruments.grep import matches
from recompute_lab.instruments.ledger import record
from recompute_lab.instruments.memory import footprint
from recompute_lab.instruments.nondeterminism import Nudge
from recompute_lab.instruments.segments import in_segments
from recompute_lab.lessons.exercise import Exercises, Hints, Wrong, whole
from recompute_lab.lessons.repairs import must_equal
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
    if not isinstance(answer, Iterable) or isinstance(answer, str | Mapping | Set):  # a set has no order
        kind = type(answer).__name__
        raise Wrong(f"expected a list of lengths such as [12, 12, 12], got {kind}")
    cut = [whole(length) for length in islice(answer, LAYERS + 1)]  # an iterator may have no end
    if min(cut, default=0) < 1 or sum(cut) != LAYERS:
        raise Wrong(
            f"the lengths must be whole numbers from 1 up that add up to {LAYERS} layers; yours add up to {sum(cut)}."
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
def unconditional(answer) -> str:
    # None holds 1 itself: what clamp's gradient is there, versions of torch do not agree on.
    inside, outside = torch.linspace(-0.9, 0.9, 8), torch.linspace(-3.0, 3.0, 8)
    inputs = {"inputs within 1": inside, "inputs mostly beyond 1": outside, "one below -1": inside - 0.3}
    inputs |= {"all above 1": inside + 3, "all below -1": inside - 3, "huge inputs": outside * 1e6}
    inputs |= {"a matrix within 1": inside.repeat(3, 1), "a matrix beyond 1": outside.repeat(3, 1)}
    saved = must_equal(answer, guarded_clamp, {name: (x,) for name, x in inputs.items()})
    nudge = Nudge({1: 4})
    two = passes(nudge.counted(lambda x: answer(nudge(x))), torch.linspace(-1.0, 1.0, 8).requires_grad_())
    if two.error is not None:
        raise Wrong(f"with noise on the threshold, checkpointing still stops it: {two.mismatch}")
    return (
        f"{saved} saved tensors on either side of the threshold, equal numbers and gradients, "
        "and no error under noise: clamp is the identity where the guard would have skipped it."
    )


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
    try:
        chosen = {None} if isinstance(answer, Mapping) else set("".join(answer).upper()) - set(" ,;")
    except TypeError:
        chosen = {None}
    if chosen - set(LINES):
        raise Wrong(f"write letters from A to F, as in 'AB'; got {reprlib.repr(answer)}")
    right = {letter for letter, line in LINES.items() if matches(line)}
    if wrong := sorted(chosen ^ right):
        letter = wrong[0]
        verb = "finds" if letter in right else "walks past"
        raise Wrong(f"{len(wrong)} of 6 judged wrongly. The grep {verb} {letter}: {_WHY[letter]}.")
    return "what it finds need not branch on a tensor, and what it walks past may."
