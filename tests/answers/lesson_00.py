"""Lesson 00, start here: a better cut, a segment without its if, the grep's lines."""

from itertools import repeat

import numpy as np
import torch
from answers.answers import Answers
from torch import nn
from torch.nn import functional as F

from recompute_lab.lessons.start_here import check, guarded_clamp

EXERCISES = check


# --- unconditional


def clamped(x):
    x = x.clamp(-1.0, 1.0)
    return x.sin()


def selected(x):
    return torch.where(x.abs() > 1.0, x.sign(), x).sin()


def by_keywords(x):
    return torch.sin(input=torch.clip(x, min=-1, max=1))


class Clamped(nn.Module):
    def forward(self, x):
        return F.hardtanh(x).sin()


def forgotten(x):
    return x.sin()


def softened(x):
    return x.tanh().sin()


def still_guarded(x):
    if x.abs().max() > 1.0:
        x = x.clamp(-1.0, 1.0)
    return x.sin()


def guarded_in_one_expression(x):
    return x.clamp(-1.0, 1.0).sin() if (x.abs() > 1.0).any() else x.sin()


def guarded_otherwise(x):
    return clamped(x) if x.detach().abs().sum() > 5.0 else x.sin()


def guarded_by_a_number(x):
    bound = 1.0 if x.abs().max() > 1.0 else 2.0
    return x.clamp(-bound, bound).sin()


def one_sided(x):
    return x.clamp(max=1.0).sin()


def returns_nothing(x):
    x.clamp(-1.0, 1.0).sin()


def detached(x):
    return x.detach().clamp(-1.0, 1.0).sin()


def straight_through(x):
    return (x + (x.clamp(-1.0, 1.0) - x).detach()).sin()


def in_place(x):
    return x.clamp_(-1.0, 1.0).sin()


def misspelt(x):
    return x.clmp(-1.0, 1.0)


ANSWERS = {
    "lengths": Answers(
        right=[
            ([8, 7, 6, 5, 4, 3, 2, 1],),
            ((9, 8, 7, 5, 4, 2, 1),),
            ((length for length in range(8, 0, -1)),),
            (np.arange(8, 0, -1),),
            (torch.arange(8, 0, -1),),
            ([7.0, 7.0, 6.0, 5.0, 4.0, 4.0, 3.0],),
        ],
        wrong=[
            (([6] * 6,), "the peak of your cut is 14 activations, and 14"),
            (([1, 2, 3, 4, 5, 6, 7, 8],), "many inputs and a long segment"),
            (([36],), "the peak of your cut is"),
            (([1] * 36,), "the peak of your cut is"),
            (([6, 5, 4],), "add up to 36 layers; yours add up to 15"),
            (([40, -4],), "whole numbers from 1 up"),
            (([8, 7, 6, 5, 4, 3, 2, 1, 0],), "whole numbers from 1 up"),
            ((repeat(6),), "add up to 36 layers"),
            (([35.5, 0.5],), "expected a whole number, got 35.5"),
            ((6,), "expected a list of lengths"),
            ((dict.fromkeys(range(8, 0, -1), 1),), "expected a list of lengths"),
            (({8, 7, 6, 5, 4, 3, 2, 1},), "expected a list of lengths"),
            (("87654321",), "expected a list of lengths"),
            ((list("87654321"),), "expected a whole number, got '8'"),
            (([float("nan"), 36],), "expected a whole number, got nan"),
            (([True] * 36,), "expected a whole number, got True"),
        ],
    ),
    "unconditional": Answers(
        right=[
            (clamped,),
            (selected,),
            (by_keywords,),
            (lambda x: x.clamp(min=-1.0).clamp(max=1.0).sin(),),
            (lambda x: torch.minimum(torch.maximum(x, -torch.ones(())), torch.ones(())).sin(),),
            (Clamped(),),
        ],
        wrong=[
            ((guarded_clamp,), "2 for inputs within 1, 3 for inputs mostly beyond 1"),
            ((still_guarded,), "number of saved tensors still depends"),
            ((guarded_in_one_expression,), "number of saved tensors still depends"),
            ((guarded_otherwise,), "for one below -1, the output should be"),
            ((guarded_by_a_number,), "what runs still depends on them"),
            ((forgotten,), "mostly beyond 1, the output should be"),
            ((one_sided,), "mostly beyond 1, the output should be"),
            ((softened,), "for inputs within 1, the output should be"),
            ((straight_through,), "the gradient should be"),
            ((in_place,), "changes argument 1 in place"),
            ((returns_nothing,), "did you forget return"),
            ((detached,), "the output or its gradient is missing"),
            ((Clamped,), "in place of the class Clamped"),
            ((misspelt,), "your answer raised AttributeError"),
        ],
    ),
    "found": Answers(
        right=[("BDF",), (["F", "D", "B"],), ("b, d, f",), ({"B", "D", "F"},), ("B D F F",)],
        wrong=[
            (("BD",), "1 of 6 judged wrongly. The grep finds F"),
            (("DF",), "a comment matches as well"),
            (("BF",), "an elif ends in if"),
            (("ABDF",), "1 of 6 judged wrongly. The grep walks past A"),
            (("BCDF",), "something between the parentheses"),
            (("BDEF",), "there is no if"),
            (("ABCDEF",), "3 of 6 judged wrongly"),
            (("",), "3 of 6 judged wrongly"),
            (("ACE",), "6 of 6 judged wrongly"),
            (("xyz",), "write letters from A to F"),
            ((3,), "write letters from A to F"),
            (({"B": True, "D": True, "F": True, "A": False},), "write letters from A to F"),
            (([["B"], ["D"]],), "write letters from A to F"),
        ],
    ),
}
