"""Lesson 01: each exercise accepts what is right, and says what is wrong with what is not."""

import pytest
import torch

from recompute_lab.lessons import crash
from recompute_lab.lessons.crash import check
from recompute_lab.lessons.exercise import NOT_ATTEMPTED, RIGHT, WRONG
from recompute_lab.specimens import guards
from recompute_lab.specimens.norm_cap import GuardedNormCap, NaNKeepingNormCap, RepairedNormCap, cap_scale

SAVED = {"x + y": 0, "x * y": 2, "x * 2": 0, "x @ y": 2, "relu(x)": 1, "softmax(x)": 1, "x * x * y": 4, "x.sum()": 0}


def unfilled(*arguments): ...


def with_gradient_through_the_scale(update, stream, limit):
    ratio = update.norm(dim=-1) / (stream.norm(dim=-1) + 1e-8)
    return update * (limit / ratio).clamp(max=1.0).unsqueeze(-1)


def without_clamp(update, stream, limit):
    with torch.no_grad():
        scale = limit / (update.norm(dim=-1) / (stream.norm(dim=-1) + 1e-8))
    return update * scale.unsqueeze(-1)


def forgets_to_return(update, stream, limit):
    update = update * cap_scale(update, stream, limit).unsqueeze(-1)


def branch_moved_elsewhere(update, stream, limit):
    scale = cap_scale(update, stream, limit)
    return update * scale.unsqueeze(-1) if scale.min() < 1 else update


RIGHT_ANSWERS = {
    "predict_saved": SAVED,
    "repair_cap": lambda update, stream, limit: RepairedNormCap(limit)(update, stream),
    "unguard_clip": lambda x, bound: x.clamp(-bound, bound),
    "unguard_nans": lambda x: torch.where(x.isnan(), 0.0, x),
    "unguard_mask": lambda scores, hidden: scores.masked_fill(hidden, float("-inf")),
}

WRONG_ANSWERS = [
    ("predict_saved", {**SAVED, "x + y": 2}, "x + y saves 0, you said 2"),
    ("predict_saved", {**SAVED, "x * x * y": 3}, "x * x * y saves 4, you said 3"),
    ("predict_saved", {"x + y": 0}, "predict these segments"),
    ("predict_saved", list(SAVED.values()), "predict these segments"),
    ("predict_saved", {name: str(saved) for name, saved in SAVED.items()}, "expected a whole number, got '0'"),
    ("predict_saved", {**SAVED, "x + y": False}, "expected a whole number, got False"),
    ("repair_cap", lambda u, s, limit: GuardedNormCap(limit)(u, s), "number of saved tensors still depends"),
    ("repair_cap", branch_moved_elsewhere, "number of saved tensors still depends"),
    ("repair_cap", with_gradient_through_the_scale, "gradient should be the guarded form's"),
    ("repair_cap", without_clamp, "no vector capped, the output should be"),
    ("repair_cap", lambda u, s, limit: u, "one capped, the output should be"),
    ("repair_cap", forgets_to_return, "the output or its gradient is missing"),
    ("repair_cap", lambda u, s, limit: RepairedNormCap(1.0)(u, s), "another limit, many capped"),
    ("repair_cap", lambda u, s, limit: RepairedNormCap(limit)(u.view(4, 3, 8), s), "is invalid for input of size"),
    ("repair_cap", RepairedNormCap, "expected a function"),
    ("repair_cap", lambda u, s, limit: u.no_such_method(), "your answer raised AttributeError"),
    ("unguard_clip", guards.clip_when_needed, "number of saved tensors still depends"),
    ("unguard_clip", lambda x, bound: bound * torch.tanh(x / bound), "nothing to clip"),
    ("unguard_clip", lambda x, bound: x.clamp(max=bound), "one element to clip"),
    ("unguard_clip", lambda x, bound: x.clamp(-2.0, 2.0), "for another bound"),
    ("unguard_nans", guards.zero_nans_when_present, "number of saved tensors still depends"),
    ("unguard_nans", torch.nan_to_num, "an infinity and no NaN"),
    ("unguard_nans", lambda x: x * (~x.isnan()), "one NaN"),
    ("unguard_nans", lambda x: x.nan_to_num(0.0, posinf=float("inf")), "minus infinity and a NaN"),
    ("unguard_mask", guards.mask_when_any, "number of saved tensors still depends"),
    ("unguard_mask", lambda s, hidden: s - 1e9 * hidden, "one hidden"),
    ("unguard_mask", lambda s, hidden: s * ~hidden, "one hidden"),
]


@pytest.mark.parametrize("name", check.all)
def test_a_right_answer_passes(name):
    assert check.all[name].judge(RIGHT_ANSWERS[name]).status == RIGHT


@pytest.mark.parametrize("name, answer, message", WRONG_ANSWERS)
def test_a_wrong_answer_is_told_why(name, answer, message):
    verdict = check.all[name].judge(answer)
    assert verdict.status == WRONG
    assert message in verdict.message


@pytest.mark.parametrize("name", check.all)
def test_each_exercise_has_two_wrong_answers_hints_and_a_stub(name):
    assert sum(wrong[0] == name for wrong in WRONG_ANSWERS) >= 2
    assert len(check.all[name].hints) >= 2
    stub = {segment: ... for segment in crash.SEGMENTS} if name == "predict_saved" else unfilled
    assert check.all[name].judge(stub).status == NOT_ATTEMPTED


def test_the_form_that_keeps_nan_is_a_right_answer_too():
    verdict = check.repair_cap.judge(lambda update, stream, limit: NaNKeepingNormCap(limit)(update, stream))
    assert verdict.status == RIGHT
