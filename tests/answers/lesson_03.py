"""Lesson 03, loud or silent: three predictions, a flip that nobody notices, which switch makes which flip loud."""

import math

import numpy as np
import torch
from answers.answers import Answers
from torch import nn

from recompute_lab.lessons.loud_or_silent import check

EXERCISES = check

FIRST, SECOND = "true, then false", "false, then true"

PREDICTION = {
    ("twice_if", FIRST): "silent",
    ("twice_if", SECOND): "silent",
    ("relu_if", FIRST): "count",
    ("relu_if", SECOND): "metadata",
    ("sine_if", FIRST): "count",
    ("sine_if", SECOND): "fine",
}

# --- silent_flip


def halved(x, hit):
    return torch.tanh(x * torch.full_like(x, 0.5) if hit else x)


def routed(x, hit):
    return torch.sin(x) if hit else torch.exp(x)


class Routed(nn.Module):
    def forward(self, x, hit=False):
        return torch.tanh(x) if hit else torch.sin(3 * x)


def flipped_sign(x, hit):
    if hit:
        x = -x
    return x.exp()


def cut_off(x, hit):
    x = torch.tanh(x)
    return torch.sin(x) if hit else x


def from_numpy_whatever_hit_is(x, hit):
    return torch.tanh(x * float(np.random.rand()))


seen = []


def by_a_count_of_its_own(x, hit):
    seen.append(1)
    return torch.tanh(x) if len(seen) % 2 else torch.sin(3 * x)


# --- loud_by

SWITCHES = {
    "scale of full shape: false, then true": "early stop off",
    "gate: false, then true": "early stop off",
    "route: true, then false": "nothing",
    "early exit: true, then false": "early stop off",
}


def state() -> int:
    seen.clear()
    return len(seen)


ANSWERS = {
    "predict": Answers(
        right=[(PREDICTION,), (dict(reversed(PREDICTION.items())),)],
        wrong=[
            (({**PREDICTION, ("twice_if", FIRST): "fine"},), "you said 'fine', torch says 'silent'"),
            (({**PREDICTION, ("twice_if", SECOND): "count"},), "torch says 'silent'"),
            (({**PREDICTION, ("relu_if", FIRST): "silent"},), "the recomputation has a tensor too few"),
            (({**PREDICTION, ("relu_if", SECOND): "count"},), "'metadata': a recomputed tensor has another shape"),
            (({**PREDICTION, ("sine_if", SECOND): "count"},), "torch says 'fine': what differs comes after the last"),
            ((dict.fromkeys(PREDICTION, "silent"),), "relu_if, true, then false: you said 'silent'"),
            (({**PREDICTION, ("sine_if", FIRST): "raises"},), "'raises' is none"),
            (({**PREDICTION, ("sine_if", FIRST): ["count", "fine"]},), "['count', 'fine'] is none"),
            (({("twice_if", FIRST): "silent"},), "keep the table's six keys"),
            ((list(PREDICTION.values()),), "keep the table's six keys"),
        ],
    ),
    "silent_flip": Answers(
        right=[
            (halved,),
            (routed,),
            (Routed(),),
            (flipped_sign,),
            (lambda x, hit: torch.tanh([x, 2 * x][hit]),),
        ],
        wrong=[
            ((lambda x, hit: torch.tanh(x),), "no error, and no harm"),
            ((cut_off,), "no error, and no harm"),
            ((lambda x, hit: torch.tanh(torch.sin(x) if hit else x),), "no error, and too little harm"),
            ((lambda x, hit: torch.tanh(x if hit else x * torch.full_like(x, 0.5)),), "the recomputation saved fewer"),
            ((lambda x, hit: torch.tanh(x * x.new_full((1,) * x.dim(), 0.5) if hit else x),), "a shape differs"),
            ((lambda x, hit: torch.tanh(x * torch.full_like(x, math.nan) if hit else x),), "zero, infinite or NaN"),
            ((from_numpy_whatever_hit_is,), "without a flip of hit, too, the recomputation differs"),
            ((by_a_count_of_its_own,), "without a flip of hit, too, the recomputation differs"),
            ((lambda x, hit: x.detach().tanh(),), "there is nothing to differentiate"),
            ((lambda x, hit: None if hit else x.tanh(),), "return a tensor that is computed from x, in both cases"),
            ((torch.tanh(torch.ones(3)),), "expected a function"),
            ((Routed,), "expected a function"),
            ((lambda x: x,), "your answer raised TypeError"),
        ],
    ),
    "loud_by": Answers(
        right=[(SWITCHES,), (dict(reversed(SWITCHES.items())),)],
        wrong=[
            (({**SWITCHES, "route: true, then false": "early stop off"},), "none of the three raises"),
            (({**SWITCHES, "gate: false, then true": "nothing"},), "'early stop off' raises"),
            (({**SWITCHES, "gate: false, then true": "reentrant"},), "'early stop off' raises"),
            (({**SWITCHES, "scale of full shape: false, then true": "check none"},), "'early stop off' raises"),
            ((dict.fromkeys(SWITCHES, "early stop off"),), "route: true, then false: you said 'early stop off'"),
            (({**SWITCHES, "gate: false, then true": "debug"},), "'debug' is none"),
            (({"gate: false, then true": "nothing"},), "answer for these flips"),
        ],
    ),
}
