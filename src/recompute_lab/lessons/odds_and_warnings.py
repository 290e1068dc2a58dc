"""Lesson 02, the threshold: the exercises."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Callable

import torch

from recompute_lab.instruments.odds import binomial_interval, dies_within, guard_true, passes_disagree
from recompute_lab.lessons.early_warning import Told, pairs
from recompute_lab.lessons.exercise import Exercises, Hints, Wrong, whole

check = Exercises()
hint = Hints(check)


def _number(value) -> float:
    """A learner's number as a float; raises `Wrong` for what is none."""
    try:
        if not isinstance(value, str | bytes | bool):
            return float(value)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        pass
    raise Wrong(f"expected a number, got {reprlib.repr(value)}")


# --- Exercise 1: the odds of a disagreement

_MISTAKES: list[tuple[Callable[[float, int], float], str]] = [
    (lambda p, n: passes_disagree(p), "that is one position's; the guard asks whether any of n is past the cap"),
    (guard_true, "that is how often the guard is true in one pass; two passes disagree if one says yes and one no"),
    (
        lambda p, n: n * passes_disagree(p),
        "that adds up n positions; but a position that flips changes nothing while another one is past the cap",
    ),
    (
        lambda p, n: guard_true(passes_disagree(p), n),
        "that is how often any position flips; the guard does not notice it while another one is past the cap",
    ),
    (
        lambda p, n: passes_disagree(p, n) / 2,
        "that is true in forward and false in recomputation; the other way round counts as well",
    ),
]


def simulated(p: float, positions: int, pairs: int = 4000, seed: int = 0) -> int:
    """In how many of `pairs` drawn pairs of passes the guard is true in exactly one."""
    past = torch.rand(pairs, 2, positions, generator=torch.Generator().manual_seed(seed)) < p
    fires = past.any(-1)
    return int((fires[:, 0] != fires[:, 1]).sum())


@check.add(
    "First one pass: how often is no position past the cap? Each of n stays below with probability 1 - p.",
    "With g, the probability that the guard is true in one pass: the passes disagree if it is true in the first and "
    "false in the second, or the other way round.",
    "g = 1 - (1 - p) ** n, and the answer is 2 * g * (1 - g).",
)
def odds(answer: Callable) -> str:
    """`answer(p, n)` against the closed form, simulated pairs, and the edges."""
    if not callable(answer):
        raise Wrong(f"expected a function odds(p, n), got {reprlib.repr(answer)}")
    for p, n in ((0.05, 10), (0.02, 40)):
        got, pairs_drawn = _number(answer(p, n)), 4000
        hits = simulated(p, n, pairs_drawn)
        low, high = binomial_interval(hits, pairs_drawn, 0.999)
        if not low <= got <= high:
            why = next((said for form, said in _MISTAKES if math.isclose(got, form(p, n), rel_tol=1e-6)), "")
            raise Wrong(
                f"p={p}, n={n}: of {pairs_drawn} drawn pairs {hits / pairs_drawn:.2f} disagree, you said {got:.4g}"
                + (f"; {why}" if why else "")
            )
    edges = {
        "no position is ever past": (0.0, 5),
        "every position always is": (1.0, 5),
        "one position": (0.3, 1),
        "two positions": (0.3, 2),
        "many positions": (0.3, 10_000),
        "very many, each rarely": (1e-6, 500_000),
    }
    for name, (p, n) in edges.items():
        expected = passes_disagree(p, n)
        try:
            got = _number(answer(p, n))
        except (ArithmeticError, ValueError) as error:  # the logarithm of 0, for one
            raise Wrong(
                f"{name}: odds({p:g}, {n}) raised {type(error).__name__}: {error}; it should be {expected:.4g}"
            ) from None
        rounding = 1e-2 if p < 1e-3 else 1e-6  # 1 - p in float32, and then to the power of n
        if not math.isclose(got, expected, rel_tol=rounding, abs_tol=1e-12):
            raise Wrong(f"{name}: odds({p:g}, {n}) should be {expected:.4g}, you said {got:.4g}")
    return "2 g (1 - g): 0 when the guard is always right or always wrong, and never above one half."


# --- Exercise 2: an early warning

EARLIEST = 15  # steps before the crash; an alarm that comes sooner says nothing of when
HELD_OUT = (20, 21)  # seeds that the lesson does not show


def _name(run: Told) -> str:
    return f"seed {run.seed}, cap {run.limit}, {'died' if run.died else 'lived'}"


@check.add(
    "Which row of the figure fired before every crash, not at the first step, and in no run that lived?",
    "Look at the latest step: history[-1] has loss, gradient, mean, largest, near, capped.",
    "return history[-1].near > 0",
)
def early_warning(answer: Callable) -> str:
    """`answer(history)` after each step of held-out runs: in time where one dies, silent where one lives."""
    if not callable(answer):
        raise Wrong(f"expected a function warn(history), got {reprlib.repr(answer)}")

    def alarm(history) -> bool:
        said = answer(history)
        if said is None or isinstance(said, str):
            raise Wrong(f"warn(history) should return True or False, it returned {said!r}")
        return bool(said)

    runs = pairs(HELD_OUT)
    for run in runs:
        lead, last = run.lead(alarm), len(run.history) - 1
        if not run.died and lead is not None:
            raise Wrong(f"a false alarm at step {last - lead} of a run that lived ({_name(run)})")
        if run.died and lead is None:
            raise Wrong(f"no alarm in a run that died at step {last} ({_name(run)})")
        if run.died and lead == 0:
            raise Wrong(f"too late: the first alarm came at step {last}, the step that died ({_name(run)})")
        if run.died and lead > EARLIEST:
            raise Wrong(
                f"an alarm at step {last - lead}, {lead} steps before the crash ({_name(run)}): more than {EARLIEST} "
                "steps ahead, nothing has begun to happen; it tells the two caps apart, not what is coming"
            )
    died = sum(run.died for run in runs)
    return f"in time in {died} held-out runs that died, silent in {len(runs) - died} that lived."


# --- Exercise 3: how long until the odds are even


@check.add(
    "A run of s steps is s * segments * ranks independent tries; it lives if all of them go well.",
    "Solve (1 - p) ** (s * segments * ranks) <= 1/2 for s, and round up.",
    "math.ceil(math.log(0.5) / (segments * ranks * math.log1p(-p)))",
)
def even_odds(answer: Callable) -> str:
    """`answer(p, segments, ranks)`: the first whole number of steps within which a run dies with probability 1/2."""
    if not callable(answer):
        raise Wrong(f"expected a function steps_until_even(p, segments, ranks), got {reprlib.repr(answer)}")
    half = 0.5 - 1e-12  # a logarithm's rounding
    for p, segments, ranks in (
        *((0.2, 1, 1), (0.01, 1, 1), (0.01, 4, 1), (0.01, 4, 8), (1e-6, 24, 64), (0.6, 2, 1)),
        (0.5, 1, 1),  # exactly one half after one step: the next whole number, always, is one too many
    ):
        got = whole(answer(p, segments, ranks))
        asked = f"steps_until_even({p:g}, {segments}, {ranks})"
        said = reprlib.repr(got)
        if got < 1:
            raise Wrong(f"{asked}: a run has at least one step, you said {said}")
        got = min(got, 10**15)  # more steps than that are too many in any case, and a float must hold them
        if (odds := dies_within(p, got, segments, ranks)) < half:
            raise Wrong(
                f"{asked}: within {said} steps the run dies with probability {odds:.3f}, which is less than 1/2"
            )
        if got > 1 and (odds := dies_within(p, got - 1, segments, ranks)) >= half:
            enough = f"{reprlib.repr(got - 1)} step{'s are' if got > 2 else ' is'} enough already"
            raise Wrong(f"{asked}: {enough}, with probability {odds:.3f}; you said {said}")
    return "log(1/2) / log(1 - p) tries, shared out among segments and ranks."
