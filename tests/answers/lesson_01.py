"""Lesson 01, the crash: what is saved, the cap without its guard, three more guards."""

import numpy as np
import torch
from answers.answers import Answers
from torch import nn
from torch.nn import functional as F

from recompute_lab.lessons.crash import check
from recompute_lab.specimens import guards
from recompute_lab.specimens.norm_cap import GuardedNormCap, NaNKeepingNormCap, RepairedNormCap, cap_scale

EXERCISES = check

INF, NAN = float("inf"), float("nan")

# --- predict_saved

SAVED = {"x + y": 0, "x * y": 2, "x * 2": 0, "x @ y": 2, "relu(x)": 1, "softmax(x)": 1, "x * x * y": 4, "x.sum()": 0}


# --- repair_cap


def always(update, stream, limit):
    return update * cap_scale(update, stream, limit).unsqueeze(-1).to(update.dtype)


def written_out(update, stream, limit):
    with torch.no_grad():
        ratio = update.float().norm(dim=-1, keepdim=True) / (stream.float().norm(dim=-1, keepdim=True) + 1e-8)
        scale = torch.minimum(limit / ratio, torch.ones(()))
    return scale.to(update.dtype) * update


class Cap(nn.Module):
    def forward(self, update, stream, limit):
        return NaNKeepingNormCap(limit)(update, stream)


def with_gradient_through_the_scale(update, stream, limit):
    ratio = update.norm(dim=-1) / (stream.norm(dim=-1) + 1e-8)
    return update * (limit / ratio).clamp(max=1.0).unsqueeze(-1)


def without_clamp(update, stream, limit):
    with torch.no_grad():
        scale = limit / (update.norm(dim=-1) / (stream.norm(dim=-1) + 1e-8))
    return update * scale.unsqueeze(-1)


def of_the_whole(update, stream, limit):
    """Shortens all vectors by the factor of the longest."""
    return update * cap_scale(update, stream, limit).min()


def in_float32(update, stream, limit):
    return update * cap_scale(update, stream, limit).unsqueeze(-1)


def forgets_to_return(update, stream, limit):
    update = update * cap_scale(update, stream, limit).unsqueeze(-1)


def branch_moved_elsewhere(update, stream, limit):
    scale = cap_scale(update, stream, limit)
    return update * scale.unsqueeze(-1).to(update.dtype) if scale.min() < 1 else update


def all_under_no_grad(update, stream, limit):
    with torch.no_grad():
        return always(update, stream, limit)


def in_place(update, stream, limit):
    return update.mul_(cap_scale(update, stream, limit).unsqueeze(-1))


# --- three more guards


def clip_each(x, bound):
    return torch.where(x.abs() > bound, bound * x.sign(), x)


def clip_in_two(x, bound):
    return x.clamp(min=-bound).clamp(max=bound)


def clip_for_speed(x, bound=2.0):
    return x.clamp(-bound, bound) if x.abs().max() > bound else x + 0


def zero_where_equal(x):
    return torch.where(x == x, x, torch.zeros_like(x))


def zero_in_place(x):
    x[x.isnan()] = 0.0
    return x


def only_with_nan(x):
    return x.nan_to_num() if x.isnan().any() else x * 1


def hide_all_that_is_large(scores, hidden):
    return scores.masked_fill(hidden, -1e9)


def adds_minus_infinity(scores, hidden):
    return scores + torch.zeros_like(scores).masked_fill(hidden, -INF)


ANSWERS = {
    "predict_saved": Answers(
        right=[
            (SAVED,),
            ({name: float(saved) for name, saved in SAVED.items()},),
            ({name: np.int64(saved) for name, saved in reversed(SAVED.items())},),
        ],
        wrong=[
            (({**SAVED, "x + y": 2},), "x + y saves 0, you said 2"),
            (({**SAVED, "x * x * y": 3},), "x * x * y saves 4, you said 3"),
            (({**SAVED, "x * x * y": 2, "x.sum()": 1},), "x * x * y saves 4, you said 2; x.sum() saves 0, you said 1"),
            (({**SAVED, "x * 2": 1},), "which tensors does its derivative contain?"),
            ((dict.fromkeys(SAVED, 1),), "x @ y saves 2, you said 1"),
            (({"x + y": 0},), "predict these segments"),
            ((list(SAVED.values()),), "predict these segments"),
            (({name: str(saved) for name, saved in SAVED.items()},), "expected a whole number, got '0'"),
            (({**SAVED, "x + y": False},), "expected a whole number, got False"),
        ],
    ),
    "repair_cap": Answers(
        right=[
            (always,),
            (written_out,),
            (Cap(),),
            (lambda update, stream, limit: RepairedNormCap(limit)(update, stream),),
            (lambda update, stream, limit: NaNKeepingNormCap(limit)(update, stream),),
        ],
        wrong=[
            ((lambda u, s, limit: GuardedNormCap(limit)(u, s),), "number of saved tensors still depends"),
            ((branch_moved_elsewhere,), "number of saved tensors still depends"),
            ((with_gradient_through_the_scale,), "gradient should be the guarded form's"),
            ((without_clamp,), "no vector capped, the output should be"),
            ((lambda u, s, limit: u,), "one capped, the output should be"),
            ((of_the_whole,), "one capped, the output should be"),
            ((in_float32,), "its dtype is torch.float32, not torch.bfloat16"),
            ((forgets_to_return,), "the output or its gradient is missing"),
            ((all_under_no_grad,), "the output or its gradient is missing"),
            ((in_place,), "changes argument 1 in place"),
            ((lambda u, s, limit: RepairedNormCap(1.0)(u, s),), "another limit, many capped"),
            ((RepairedNormCap,), "expected a function"),
            ((lambda u, s, limit: RepairedNormCap(limit)(u.view(4, 3, 8), s),), "your answer raised RuntimeError"),
        ],
    ),
    "unguard_clip": Answers(
        right=[
            (lambda x, bound: x.clamp(-bound, bound),),
            (lambda x, bound: torch.clip(x, min=-bound, max=bound),),
            (lambda x, bound: F.hardtanh(x, -bound, bound),),
            (clip_each,),
            (clip_in_two,),
        ],
        wrong=[
            ((guards.clip_when_needed,), "number of saved tensors still depends"),
            ((clip_for_speed,), "depends on them"),
            ((lambda x, bound: bound * torch.tanh(x / bound),), "nothing to clip"),
            ((lambda x, bound: x.clamp(max=bound),), "one element to clip"),
            ((lambda x, bound: x.clamp(-2.0, 2.0),), "for another bound"),
            ((lambda x, bound: x * (x.abs() <= bound),), "one element to clip"),
            ((lambda x, bound: x.clamp_(-bound, bound),), "changes argument 1 in place"),
        ],
    ),
    "unguard_nans": Answers(
        right=[
            (lambda x: torch.where(x.isnan(), 0.0, x),),
            (lambda x: x.masked_fill(torch.isnan(x), 0.0),),
            (lambda x: x.nan_to_num(nan=0.0, posinf=INF, neginf=-INF),),
            (zero_where_equal,),
        ],
        wrong=[
            ((guards.zero_nans_when_present,), "number of saved tensors still depends"),
            ((only_with_nan,), "an infinity and a NaN"),
            ((torch.nan_to_num,), "an infinity and no NaN"),
            ((lambda x: x * (~x.isnan()),), "one NaN"),
            ((lambda x: x.nan_to_num(0.0, posinf=INF),), "minus infinity and a NaN"),
            ((lambda x: torch.where(x.isfinite(), x, 0.0),), "an infinity and no NaN"),
            ((lambda x: torch.where(x == NAN, 0.0, x),), "one NaN"),
            ((zero_in_place,), "changes argument 1 in place"),
        ],
    ),
    "unguard_mask": Answers(
        right=[
            (lambda scores, hidden: scores.masked_fill(hidden, -INF),),
            (lambda scores, hidden: torch.where(hidden, -torch.inf, scores),),
            (lambda scores, hidden: torch.masked_fill(scores, mask=hidden, value=-INF),),
        ],
        wrong=[
            ((guards.mask_when_any,), "number of saved tensors still depends"),
            ((lambda s, hidden: s - 1e9 * hidden,), "one hidden"),
            ((hide_all_that_is_large,), "one hidden"),
            ((lambda s, hidden: s * ~hidden,), "one hidden"),
            ((lambda s, hidden: s.masked_fill(~hidden, -INF),), "nothing hidden"),
            ((lambda s, hidden: s - INF * hidden,), "nothing hidden"),
            ((adds_minus_infinity,), "an infinite score that is hidden"),
            ((lambda s, hidden: s.masked_fill_(hidden, -INF),), "changes argument 1 in place"),
        ],
    ),
}
