"""Lesson 06, audit your source: twelve hits, what is walked past, three repairs."""

import torch
from answers.answers import Answers

from recompute_lab.lessons.audit_exercises import check
from recompute_lab.specimens.small_project import mixing

EXERCISES = check


# --- triage

TRIAGE = {
    "A": ("inside", "armed", "graph", "repair"),
    "B": ("not seen", "armed", "nothing", "keep"),
    "C": ("inside", "armed", "raise", "move"),
    "D": ("inside", "armed", "graph", "repair"),
    "E": ("inside", "armed", "state", "move"),
    "F": ("inside", "armed", "telemetry", "keep"),
    "G": ("inside", "dormant", "graph", "repair"),
    "H": ("not seen", "armed", "nothing", "keep"),
    "I": ("inside", "armed", "graph", "repair"),
    "J": ("inside", "armed", "graph", "repair"),
    "K": ("not seen", "armed", "raise", "keep"),
    "L": ("not seen", "armed", "graph", "keep"),
}


# --- walked_past, missed_by_both

COMPARED = """
def segment(x):
    if x.abs().max() > 1.0:
        x = x.tanh()
    return x.sin()
"""
LATER = """
def segment(x):
    largest = x.amax().item()
    return x.tanh() if largest > 1 else x.sin()
"""
LOOP = """
    def segment(x):
        while x.norm() > 1.0:
            x = x / 2
        return x.tanh()
"""
BY_A_FUNCTION = """
def large(x):
    return bool((x.abs() > 1.0).any())

def segment(x):
    if large(x):
        x = x.tanh()
    return x.sin()
"""
TABLE = """
ARMS = {"True": torch.tanh, "False": torch.sin}

def segment(x):
    return ARMS[str((x.max() > 1.0).item())](x)
"""
EXCEPT = """
def segment(x):
    try:
        return x.narrow(0, 0, int(x.amax().clamp(0, 20)) + 1).tanh()
    except RuntimeError:
        return x.sin()
"""
CALLED = """
def segment(x):
    if x.max():
        x = x.tanh()
    return x.sin()
"""
BY_SHAPE = """
def segment(x):
    if x.shape[0] > 4:
        x = x.tanh()
    return x
"""
BY_WHERE = """
def segment(x):
    return torch.where(x.abs().max() > 1.0, x.tanh(), x.sin())
"""
BY_A_COUNT = """
calls = []

def segment(x):
    calls.append(1)
    return x.tanh() if len(calls) > 6 else x.sin()
"""
NEVER = """
def segment(x):
    if x.abs().max() > 1e6:
        x = x.tanh()
    return x.sin()
"""


# --- three repairs


def bent(x, hot):
    large = x.abs().amax() > hot
    safe = torch.where(large, x, 0.0)
    return torch.where(large, hot * torch.tanh(safe / hot), x)


def bent_by_maximum(x, hot):
    hot_now = torch.gt(torch.max(torch.abs(x)), hot)
    bent = torch.tanh(x.masked_fill(~hot_now, 0.0) / hot) * hot
    return torch.where(condition=hot_now, input=bent, other=x)


def bent_poisoned(x, hot):
    return torch.where(x.abs().amax() > hot, hot * torch.tanh(x / hot), x)


def bent_each(x, hot):
    return torch.where(x.abs() > hot, hot * torch.tanh(x / hot), x)


def bent_always(x, hot):
    return hot * torch.tanh(x / hot)


def bent_still(x, hot):
    large = x.abs().amax() > hot
    if large:
        x = hot * torch.tanh(x / hot)
    return x * 1


def is_hot(x, hot):
    return bool(x.abs().amax() > hot)


def bent_by_a_helper(x, hot):
    return hot * torch.tanh(x / hot) if is_hot(x, hot) else x * 1


def bent_by_number(x, hot):
    share = float(x.abs().amax() > hot)
    return x + share * (hot * torch.tanh(x / hot) - x)


def bent_where(large, x, hot):
    return torch.where(large, hot * torch.tanh(torch.where(large, x, 0.0) / hot), x)


def bent_above_alone(x, hot):
    return bent_where(x.amax() > hot, x, hot)


def bent_where_any(x, hot):
    return bent_where((x.abs() > hot).any(), x, hot)


def bent_from_the_threshold(x, hot):
    return bent_where(x.abs().amax() >= hot, x, hot)


class Bent(torch.nn.Module):
    """Right, but the audit cannot be shown its source."""

    def forward(self, x, hot):
        return bent(x, hot)


def in_bounds(x):
    if x.dtype != torch.float16:
        return x * 1
    largest = torch.finfo(x.dtype).max - 1000
    return torch.where(torch.isinf(x).any(), x.clamp(-largest, largest), x)


def in_chosen_bounds(x):
    if x.dtype != torch.float16:
        return x * 1
    largest = torch.finfo(x.dtype).max
    bound = torch.where(torch.isinf(x).any(), largest - 1000, largest).to(x.dtype)
    return torch.clamp(x, min=-bound, max=bound)


def in_bounds_always(x):
    if x.dtype != torch.float16:
        return x * 1
    largest = torch.finfo(x.dtype).max - 1000
    return x.clamp(-largest, largest)


def in_bounds_of_any_dtype(x):
    largest = torch.finfo(torch.float16).max - 1000
    return torch.where(torch.isinf(x).any(), x.clamp(-largest, largest), x)


def in_bounds_still(x):
    largest = torch.finfo(x.dtype).max - 1000
    return x.clamp(-largest, largest) if x.dtype == torch.float16 and x.isinf().any() else x * 1


def in_bounds_each(x):
    largest = torch.finfo(torch.float16).max - 1000
    return x if x.dtype != torch.float16 else torch.where(torch.isinf(x), x.sign() * largest, x)


def replaced(x):
    largest = torch.finfo(torch.float16).max - 1000
    return torch.nan_to_num(x, posinf=largest, neginf=-largest)


def summed(x, parts):
    if x.shape[1] < parts:
        return x.mean(1)
    means = [part.mean(1) for part in x.chunk(parts, dim=1)]
    return sum(torch.where(mean.abs().mean() > 0.25, mean, 0.0) for mean in means) / len(means)


def summed_in_a_loop(x, parts=3):
    if x.shape[1] < parts:
        return torch.mean(x, dim=1)
    pieces, total = torch.chunk(x, parts, 1), 0
    for piece in pieces:
        mean = piece.mean(dim=1)
        loud = mean.abs().mean().gt(0.25)
        total = total + mean.masked_fill(~loud, 0.0)
    return total / len(pieces)


def summed_by_factor(x, parts):
    if x.shape[1] < parts:
        return x.mean(1)
    means = [part.mean(1) for part in x.chunk(parts, dim=1)]
    return sum(mean * (mean.abs().mean() > 0.25) for mean in means) / len(means)


def summed_all(x, parts):
    if x.shape[1] < parts:
        return x.mean(1)
    means = [part.mean(1) for part in x.chunk(parts, dim=1)]
    return sum(means) / len(means)


def summed_without_shape(x, parts):
    means = [part.mean(1) for part in x.chunk(parts, dim=1)]
    return sum(torch.where(m.abs().mean() > 0.25, m, 0.0) for m in means) / len(means)


def summed_element_by_element(x, parts):
    if x.shape[1] < parts:
        return x.mean(1)
    means = [part.mean(1) for part in x.chunk(parts, dim=1)]
    return sum(torch.where(mean.abs() > 0.25, mean, 0.0) for mean in means) / len(means)


def triaged(letter: str, *said) -> tuple:
    return ({**TRIAGE, letter: said},)


ANSWERS = {
    "triage": Answers(
        right=[
            (TRIAGE,),
            triaged("B", "inside", "dormant", "nothing", "keep"),
            ({letter: list(words) for letter, words in reversed(TRIAGE.items())},),
        ],
        wrong=[
            (triaged("A", "not seen", "armed", "graph", "keep"), "a run finds it in a recomputation"),
            (triaged("B", "not seen", "armed", "graph", "keep"), "it is text, or NumPy"),
            (triaged("H", "inside", "armed", "nothing", "repair"), "There is nothing to repair"),
            (triaged("G", "inside", "armed", "graph", "repair"), "float32 never gets past the dtype"),
            (triaged("G", "inside", "dormant", "graph", "keep"), "Dormant is not fixed"),
            (triaged("C", "inside", "dormant", "raise", "move"), "nothing is off before it"),
            (triaged("C", "inside", "armed", "raise", "keep"), "it happens in both passes"),
            (triaged("E", "inside", "armed", "telemetry", "keep"), "an attribute that is read again"),
            (triaged("F", "inside", "armed", "graph", "repair"), "whether a line is logged"),
            (triaged("K", "inside", "armed", "raise", "move"), "after both checkpoints"),
            (triaged("L", "not seen", "armed", "graph", "repair"), "no recomputation can go wrong"),
            ((dict.fromkeys(TRIAGE, TRIAGE["A"]),), "And 6 more."),
            (triaged("J", "inside", "armed", "loop", "repair"), "'loop' is none of"),
            (triaged("J", "inside", "armed"), "give four words"),
            (({"A": TRIAGE["A"]},), "keep the twelve letters"),
        ],
    ),
    "walked_past": Answers(
        right=[(COMPARED,), (LATER,), (LOOP,), (BY_A_FUNCTION,)],
        wrong=[
            ((CALLED,), "the grep finds it: if x.max():"),
            (("def segment(x):\n    return x.tanh()",), "no value decides what runs"),
            ((BY_SHAPE,), "no value decides what runs"),
            ((BY_WHERE,), "no value decides what runs"),
            ((NEVER,), "for 7 kinds of input"),
            ((BY_A_COUNT,), "no value decides what runs"),
            ((TABLE,), "the audit misses it too"),
            (("def block(x):\n    return x",), "a function of the name segment"),
            (("if x.abs().max() > 1.0: x = x.tanh()",), "Python cannot run it: NameError"),
            (("def segment(x):\n    assert x.max() < 1\n    return x",), "no operation hangs on it"),
            (("def segment(x)\n    return x",), "Python cannot parse it, in line 1 of your text"),
            ((len,), "give the source as a text"),
            ((COMPARED.replace("return x.sin()", "print(x.sum().item() > 9)"),), "has to return a tensor"),
            (("def segment(x):\n    return x.tanh() if torch.rand(()) < 0.5 else x",), "two runs with the same input"),
        ],
    ),
    "missed_by_both": Answers(
        right=[(TABLE,), (EXCEPT,), (TABLE.replace("def", "# a table\ndef"),)],
        wrong=[
            ((COMPARED,), "the audit finds it, in line 2 of your text: if x.abs().max() > 1.0:"),
            ((LOOP,), "the audit finds it, in line 2 of your text: while x.norm() > 1.0:"),
            (("def segment(x):\n    return x[x > 0].sum()",), "no value decides what runs"),
            ((BY_WHERE,), "no value decides what runs"),
            ((BY_A_COUNT,), "no value decides what runs"),
            ((CALLED,), "the grep finds it"),
            (
                (COMPARED.replace("1.0:", "1.0:  # recompute-lab: ignore[tensor-branch] not here"),),
                "suppresses the finding is no form",
            ),
        ],
    ),
    "bent_back": Answers(
        right=[(bent,), (bent_by_maximum,)],
        wrong=[
            ((bent_each,), "for one above, the output should be the guarded form's"),
            ((bent_poisoned,), "for one NaN, the gradient should be the guarded form's"),
            ((bent_always,), "for small activations, the output should be"),
            ((bent_still,), "still depends on them"),
            ((bent_by_a_helper,), "still depends on them"),
            ((bent_by_number,), "should be the guarded form's bit for bit"),
            ((bent_above_alone,), "for one far below zero"),
            ((bent_where_any,), "for one NaN, one above"),
            ((bent_from_the_threshold,), "for one exactly at the threshold"),
            ((Bent(),), "its source is needed for the audit: write the function in this cell, with def"),
            ((lambda x, hot: x.detach(),), "missing"),
        ],
    ),
    "clamped": Answers(
        right=[(in_bounds,), (in_chosen_bounds,)],
        wrong=[
            ((in_bounds_always,), "for float16, 65000 and no infinity"),
            ((in_bounds_of_any_dtype,), "for float32, one infinity"),
            ((in_bounds_still,), "still depends on them"),
            ((in_bounds_each,), "for float16, 65000 and an infinity"),
            ((replaced,), "for float16, 65000 and an infinity"),
            ((3,), "expected a function"),
        ],
    ),
    "summary": Answers(
        right=[(summed,), (summed_in_a_loop,)],
        wrong=[
            ((summed_by_factor,), "for one part of NaN"),
            ((summed_all,), "for one part of zeros, the gradient should be"),
            ((summed_without_shape,), "for fewer places than parts, one with small numbers"),
            ((summed_element_by_element,), "the output should be the guarded form's"),
            ((mixing.summary,), "still depends on them"),
        ],
    ),
}
