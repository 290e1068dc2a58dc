"""Answers that look like a repair and are none are turned down, in a sentence; odd ones that are one pass."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from recompute_lab.lessons.exercise import Wrong, whole
from recompute_lab.lessons.repairs import must_equal


def guarded(x, y, bound):
    if (x.abs() > bound).any():
        x = x.clamp(-bound, bound)
    return x * y.detach()


INPUTS = {
    name: (torch.linspace(-size, size, 6).view(shape), torch.ones(shape), 1.0)
    for name, size, shape in (("small", 0.9, (6,)), ("large", 3.0, (6,)), ("other", 3.0, (2, 3)))
}


class Segment(nn.Module):
    def forward(self, x, y, bound):
        return x.clamp(-bound, bound) * y.detach()


def reads_a_number(x, y, bound):
    if x.abs().max().item() > 2:  # decides nothing about the graph
        bound = float(bound)
    return x.clamp(-bound, bound) * y.detach()


def draws(x, y, bound):
    torch.rand(3)
    return x.clamp(-bound, bound) * y.detach()


RIGHT = [Segment(), reads_a_number, draws, lambda x, y, b: guarded(x.clamp(-b, b), y, b)]


def other_bounds(x, y, bound):
    return x.clamp(-bound, bound) * y.detach() if x.abs().max() > bound else x.clamp(-9.0, 9.0) * y.detach()


def other_operation(x, y, bound):
    return (x.clamp(-bound, bound) if x.abs().max() > bound else x + 0) * y.detach()


def other_shape(x, y, bound):
    x = x.clamp(-bound, bound)
    return x * (y.detach() if x.abs().max() < bound else torch.ones(()))


def in_place(x, y, bound):
    return x.clamp_(-bound, bound) * y.detach()


def behind_autograds_back(x, y, bound):
    result = x.clamp(-bound, bound) * y.detach()
    y.data.zero_()
    return result


WRONG = [
    (guarded, "the number of saved tensors still depends on them"),
    (other_bounds, "what runs still depends on them"),
    (other_operation, "depends on them"),
    (other_shape, "depends on them: mul saves"),
    (lambda *a: checkpoint(guarded, *a, use_reentrant=False), "what runs still depends on them"),
    (lambda *a: checkpoint(guarded, *a, use_reentrant=True), "use_reentrant=True"),
    (in_place, "for large, your function changes argument 1 in place"),
    (behind_autograds_back, "for small, your function changes argument 2 in place"),
    (lambda x, y, b: x.clamp(-b, b) * y, "for small, the gradient of argument 2 should be"),
    (lambda x, y, b: Segment()(x, y, b).double(), "its dtype is torch.float64, not torch.float32"),
    (lambda x, y, b: Segment()(x, y, b).view(6), "for other, the output should be the guarded form's bit for bit"),
    (lambda x, y, b: Segment()(x, y, b).detach().requires_grad_(), "there is none"),
    (lambda x, y, b: Segment()(x, y, b).detach().numpy(), "did you forget return?"),
    (lambda x, y, b: (Segment()(x, y, b),), "did you forget return?"),
    (lambda x, y, b: x.tanh() * y.detach(), "for small, the output should be"),
    (Segment, "expected a function, or an object to be called like one, in place of the class Segment"),
    (2, "in place of this int"),
]


@pytest.mark.parametrize("answer", RIGHT)
def test_a_repair(answer):
    state = torch.get_rng_state()
    must_equal(answer, guarded, INPUTS)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("answer, why", WRONG)
def test_none(answer, why):
    with pytest.raises(Exception) as caught:
        must_equal(answer, guarded, INPUTS)
    assert why in str(caught.value)
    assert isinstance(caught.value, Wrong) or "use_reentrant" in why


def test_the_inputs_stay_as_they_are():
    before = INPUTS["large"][0].clone()
    with pytest.raises(Wrong):
        must_equal(in_place, guarded, INPUTS)
    assert torch.equal(INPUTS["large"][0], before) and not INPUTS["large"][0].requires_grad


@pytest.mark.parametrize("number", [2, 2.0, np.int64(2), torch.tensor(2)])
def test_a_whole_number(number):
    assert whole(number) == 2 and type(whole(number)) is int


@pytest.mark.parametrize("number", [True, "2", 2.5, float("nan"), float("inf"), None, [2], torch.ones(2), b"2"])
def test_no_whole_number(number):
    with pytest.raises(Wrong, match="^expected a whole number, got "):
        whole(number)
