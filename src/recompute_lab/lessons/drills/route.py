"""The expert of each row: decided once, and each expert sees its own rows alone."""

from __future__ import annotations

import itertools
from functools import partial

import torch

from recompute_lab.instruments.nondeterminism import moved
from recompute_lab.instruments.state import same_bits
from recompute_lab.instruments.steps import IMPLEMENTATIONS, outcomes, plainly
from recompute_lab.lessons.drills.drill import Drill, Make
from recompute_lab.lessons.drills.measure import RIGHT, word_for
from recompute_lab.lessons.drills.training import alone, near
from recompute_lab.lessons.exercise import Wrong
from recompute_lab.specimens.drills.route import Routed

ULPS = 8


class OtherLastBits(torch.nn.Module):
    """Moves the scores of one expert by some units in the last place, up and down by turns."""

    def __init__(self, expert: int, first: int):
        super().__init__()
        self.expert = expert
        self.signs = itertools.cycle((first, -first))  # nobody can put it back, as nobody can a kernel's race

    def forward(self, scores: torch.Tensor) -> torch.Tensor:
        steps = torch.zeros_like(scores, dtype=torch.int32)
        steps[:, self.expert] = next(self.signs) * ULPS
        with torch.no_grad():
            noise = moved(scores.detach(), steps) - scores
        return scores + noise


class Turned(torch.nn.Module):
    """Scores in reverse, [N, 4]: in each call, or in every second one alone. Far more than rounding does."""

    def __init__(self, *turned: bool):
        super().__init__()
        self.turned = itertools.cycle(turned)

    def forward(self, scores: torch.Tensor) -> torch.Tensor:
        return scores.flip(1) if next(self.turned) else scores


def turned(make: Make, *turns: bool) -> Routed:
    model = make()
    model.rounded = Turned(*turns)
    return model


def must_ask_rounded(make: Make) -> None:
    """What comes out of `rounded` is what decides and weighs."""
    losses = []
    for one in (make, Routed):
        with alone(partial(turned, one, True)) as model:
            losses.append(model.step(plainly))
    if isinstance(losses[0], torch.Tensor) and not near(*losses):
        raise Wrong("self.rounded is called, but what it gives is not what decides: no other scores are to be had.")


def must_decide_once(make: Make) -> None:
    """Other scores in the second pass, by whatever amount, send no row to another expert."""
    seen: list[list[torch.Tensor]] = []
    with alone(partial(turned, make, False, True)) as model:
        for expert in model.experts:
            rows: list[torch.Tensor] = []
            seen.append(rows)
            expert.register_forward_pre_hook(lambda module, args, rows=rows: rows.append(args[0].detach().clone()))
        try:
            model.step(IMPLEMENTATIONS["non-reentrant"])
        except RuntimeError:
            pass  # the passes differ: which rows went where has been seen all the same
    if any(not same_bits(first, other) for first, *others in filter(None, seen) for other in others):
        raise Wrong(
            "other scores in the second pass still send rows elsewhere. Ties may come out right; but to round the "
            "scores, or to ask for a margin, only moves the place where the route flips."
        )


def on_a_tie(make: Make, first: int) -> Routed:
    """The model with two experts equally good for one row, and noise that decides between them, `first` up or down."""
    model = make()
    with torch.no_grad():
        scores = model.router(model.stem(model.rows))
        best = scores.topk(2, dim=1)
        row = int(best.values[:, 1].argmax())  # its scores are far from zero: an ulp is what it is for its tie
        one, other = best.indices[row].tolist()
        model.router.bias[other] += scores[row, one] - scores[row, other]
    model.rounded = OtherLastBits(other, first)
    return model


def staged(first: int, make: Make) -> Make:
    return partial(on_a_tie, make, first)


def must_do(make: Make) -> None:
    rows, calls = [], []
    with alone(partial(on_a_tie, make, +1)) as model:
        for expert in model.experts:
            expert.register_forward_pre_hook(lambda module, args: rows.append(args[0].shape[0]))
        model.rounded.register_forward_pre_hook(lambda *_: calls.append(1))
        model.step(plainly)
    if not calls:
        raise Wrong(
            "self.rounded is not called: it stands for the kernel that makes the scores, which you have not got."
        )
    if sum(rows) != len(model.rows):
        told = f"the experts see {sum(rows)} rows in all, of a batch of {len(model.rows)}: a row has one expert."
        result = outcomes(staged(+1, make))["non-reentrant"]
        if (word := word_for(result)) != RIGHT:
            told += f" Nor does that repair it: on a tie, non-reentrant is {word!r}, since the route still flips."
        raise Wrong(told)
    must_ask_rounded(make)


DRILL = Drill(
    name="route",
    title="The best of four experts",
    topic="order and rounding",
    level="staff",
    minutes=15,
    faulty=Routed,
    inside=lambda model: list(model.experts),
    must_do=must_do,
    besides=must_decide_once,
    staged=(("tie, up then down", partial(staged, +1)), ("tie, down then up", partial(staged, -1))),
    hints_say=(
        "One row stands on a tie, and the two passes send it to different experts. How many rows does each expert see, "
        "and of which shape is what it saves?",
        "The number of saved tensors does not depend on the route. Reentrant compares neither numbers nor shapes.",
    ),
    hints_mend=(
        "No value that may come out otherwise may decide anything twice. Decide once, and let both passes be told.",
        "Scores and route are made in step, and whole numbers can be given to a segment, too. The softmax may stay in "
        "the segment: its last bits decide nothing.",
        "scores = self.rounded(self.router(x)), route = scores.argmax(1), then run(self.sent, x, scores, route).",
    ),
    well="on a tie in both directions, one decision for both passes; and still each row has one expert.",
)
