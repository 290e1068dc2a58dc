"""Divergence: known errors are measured as what they are, and nothing is hidden."""

import math
from dataclasses import dataclass

import pytest
import torch
from torch import nn

from recompute_lab.instruments.checkpointing import NON_REENTRANT, PLAIN, REENTRANT, STRATEGIES
from recompute_lab.instruments.gradients import Divergence, Row, _compare, divergence

TWICE_RUN = STRATEGIES[1:]
each_twice = pytest.mark.parametrize("strategy", TWICE_RUN, ids=lambda s: s.name)


def leaf(*shape):
    return torch.randn(*shape, requires_grad=True)


class PrivateDropout(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.generator = torch.Generator().manual_seed(5)

    def forward(self, x):
        y = self.linear(x).tanh()
        keep = torch.rand(y.shape, generator=self.generator) < 0.5
        return (y * keep).sin()


@each_twice
def test_a_private_generator_gives_wrong_gradients(strategy):
    module, x = PrivateDropout(), leaf(16, 8)
    state = module.generator.get_state()
    result = divergence(module, x, strategy=strategy)
    assert result.raised is None and not result.equal
    assert result.worst > 0.01 and all(row.cosine < 1 for row in result.rows if not row.equal)
    assert torch.equal(module.generator.get_state(), state)
    assert str(result).startswith(f"{strategy.name}: largest relative gradient error ")


@each_twice
@pytest.mark.parametrize("factor", [2.0, 0.5, -1.0, 0.0])
def test_a_scaled_gradient_has_exactly_that_error(strategy, factor):
    """The factor that the backward multiplies by is saved, and the recomputation saves another one."""

    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, scale):
            ctx.save_for_backward(torch.tensor(scale))
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            return gradient * ctx.saved_tensors[0], None

    calls = 0

    def segment(x):
        nonlocal calls
        calls += 1
        return Scaled.apply(x, 1.0 if calls == 1 else factor)

    (row,) = divergence(segment, leaf(64), strategy=strategy).rows
    assert row.error == pytest.approx(abs(factor - 1), abs=1e-12)
    assert math.isnan(row.cosine) if factor == 0 else row.cosine == pytest.approx(math.copysign(1, factor))
    assert not row.equal


@each_twice
def test_changed_state_is_named(strategy):
    result = divergence(nn.Sequential(nn.BatchNorm1d(4), nn.ReLU()), leaf(8, 4), strategy=strategy)
    names = ["0.num_batches_tracked", "0.running_mean", "0.running_var"]
    assert result.effects == result.changed == names
    assert all(row.equal for row in result.rows) and result.worst == 0.0 and not result.equal
    assert "changed: 0.num_batches_tracked, 0.running_mean, 0.running_var" in str(result)


@dataclass
class Note:
    value: torch.Tensor
    text: str


@each_twice
def test_state_that_ends_up_the_same_is_an_effect_and_no_change(strategy):
    class Telemetry(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("last", torch.zeros(3))
            self.removed = 1

        def forward(self, x):
            self.last = x.detach() * float("nan")
            self.notes = [x.detach(), {"deep": (x.detach() + 1, float("nan"))}]
            self.note = Note(x.detach(), "same")
            self.array = x.detach().numpy()
            self.loop = [1]
            self.loop.append(self.loop)
            self.__dict__.pop("removed", None)
            return x.sin()

    result = divergence(Telemetry(), leaf(3), strategy=strategy)
    assert set(result.effects) >= {"array", "last", "loop", "note", "notes", "removed"}
    assert result.changed == [] and result.equal


@each_twice
def test_state_that_differs_deep_inside_is_a_change(strategy):
    class Deep(nn.Module):
        def __init__(self):
            super().__init__()
            self.calls, self.log = 0, []

        def forward(self, x):
            self.calls += 1
            self.box = [{"n": torch.full((2,), float(self.calls))}]
            self.log.append(self.calls)
            return x.sin()

    assert divergence(Deep(), leaf(3), strategy=strategy).changed == ["box", "calls", "log"]


@each_twice
def test_state_that_only_one_side_changes_is_a_change(strategy):
    class Second(nn.Module):
        def __init__(self):
            super().__init__()
            self.calls = 0

        def forward(self, x):
            self.calls = 1 - self.calls
            if not self.calls:
                self.again = True
            return x.sin()

    result = divergence(Second(), leaf(3), strategy=strategy)
    assert (result.effects, result.changed) == (["calls"], ["again", "calls"])


def test_missing_and_unexpected():
    class Branch(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Parameter(torch.randn(3)), nn.Parameter(torch.randn(3))
            self.calls = 0

        def forward(self, x):
            self.calls += 1
            return x * (self.a if self.calls == 1 else self.b)

    result = divergence(Branch(), leaf(3), strategy=REENTRANT)
    assert (result.missing, result.unexpected) == (["a"], ["b"])
    assert [row.name for row in result.rows] == ["args[0]"] and not result.equal


@each_twice
def test_what_the_strategy_raises_is_kept(strategy):
    class Fails(nn.Module):
        calls = 0  # a class attribute: not searched, so set on the instance below

        def forward(self, x):
            self.calls = self.calls + 1
            y = x.sin().exp()
            if self.calls == 2:
                raise LookupError("second time")
            return y

    result = divergence(Fails(), leaf(3), strategy=strategy)
    stops_before = strategy is NON_REENTRANT
    assert (type(result.raised) is LookupError) is not stops_before
    assert not result.equal  # the number of calls differs in any case
    assert stops_before or "raised LookupError (another error)" in str(result)


def test_what_the_plain_run_raises_passes_through():
    with pytest.raises(ZeroDivisionError):
        divergence(lambda x: 1 / 0, leaf(2))
    with pytest.raises(TypeError, match="callable or an nn.Module"):
        divergence(3, leaf(2))
    with pytest.raises(ValueError, match="nothing to differentiate"):
        divergence(lambda x: x.detach(), leaf(2))


@pytest.mark.parametrize("loss", [lambda y: y, lambda y: 3, lambda y: y.sum().detach()])
def test_a_loss_is_one_number_that_requires_grad(loss):
    with pytest.raises(ValueError, match="`loss` must return"):
        divergence(torch.sin, leaf(2), loss=loss)


@each_twice
def test_a_loss_of_ones_own(strategy):
    result = divergence(lambda x: {"y": x.sin(), "z": x}, leaf(2), strategy=strategy, loss=lambda out: out["y"].sum())
    assert result.missing == (["args[0]"] if strategy is REENTRANT else [])


@each_twice
def test_equal_nans_are_equal(strategy):
    result = divergence(lambda x: (x * float("nan")).sin(), leaf(3), strategy=strategy)
    assert result.equal and result.worst == 0.0


def test_an_output_that_differs_is_seen_where_gradients_do_not():
    class Shift(nn.Module):
        def forward(self, x):
            return x.sin() + 1 if torch.is_grad_enabled() else x.sin()

    result = divergence(Shift(), leaf(3), strategy=REENTRANT)
    assert all(row.equal for row in result.rows) and not result.output_equal and not result.equal


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("baseline", "gradient", "error", "cosine", "equal"),
    [
        ([3.0, 4.0], [3.0, 4.0], 0.0, 1.0, True),
        ([3.0, 4.0], [6.0, 8.0], 1.0, 1.0, False),
        ([3.0, 4.0], [-3.0, -4.0], 2.0, -1.0, False),
        ([1.0, 0.0], [0.0, 1.0], math.sqrt(2), 0.0, False),
        ([0.0, 0.0], [0.0, 1.0], INF, NAN, False),
        ([0.0, 0.0], [0.0, -0.0], 0.0, NAN, False),
        ([0.0, 0.0], [0.0, 0.0], 0.0, NAN, True),
        ([NAN, 1.0], [NAN, 1.0], 0.0, NAN, True),
        ([NAN, 1.0], [1.0, 1.0], INF, NAN, False),
        ([1.0, 1.0], [INF, 1.0], INF, NAN, False),
        ([], [], 0.0, NAN, True),
        ([1.0], [1.0, 2.0], INF, NAN, False),
    ],
)
def test_a_row(baseline, gradient, error, cosine, equal):
    row = _compare("w", torch.tensor(baseline), torch.tensor(gradient))
    assert row.error == pytest.approx(error) and row.equal is equal
    assert row.cosine == pytest.approx(cosine, nan_ok=True)


def test_worst_and_equal():
    assert Divergence("s").worst == 0.0 and Divergence("s").equal
    rows = [Row("a", 0.1, 1.0, False), Row("b", INF, NAN, False), Row("c", 0.0, 1.0, True)]
    assert Divergence("s", rows=rows).worst == INF and not Divergence("s", rows=rows).equal
    assert not Divergence("s", raised=ValueError()).equal


def test_the_plain_strategy_equals_itself():
    assert divergence(PrivateDropout(), leaf(4, 8), strategy=PLAIN).equal
    assert str(divergence(torch.sin, leaf(3))) == "non-reentrant: equal to the plain run, bit for bit"


@each_twice
def test_every_tensor_of_a_nested_argument_is_compared(strategy):
    pair = [leaf(3), {"b": leaf(3)}]
    result = divergence(lambda pair, x: pair[0] * pair[1]["b"] * x, pair, leaf(3), strategy=strategy)
    assert result.equal and {row.name for row in result.rows} == {"args[0][0]", "args[0][1]['b']", "args[1]"}


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
@each_twice
def test_reentrant_does_not_look_into_nested_arguments(strategy):
    result = divergence(lambda pair: pair[0] * pair[1], [leaf(3), leaf(3)], strategy=strategy)
    assert result.missing == (["args[0][0]", "args[0][1]"] if strategy is REENTRANT else [])
