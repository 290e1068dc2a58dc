"""The checkpoint of one's own keeps the promises of torch's non-reentrant one, and counts both ways."""

import contextlib
import gc
import random
import weakref

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from recompute_lab import NON_REENTRANT, PLAIN, Mismatch, divergence, same_bits
from recompute_lab.instruments.checkpointing import STRATEGIES
from recompute_lab.instruments.memory import footprint
from recompute_lab.instruments.own_checkpoint import (
    ALL_REPLAYED,
    NAIVE,
    OWN,
    TORCH_REPLAYED,
    OwnCheckpoint,
    RecomputationMismatch,
)
from recompute_lab.specimens.trunk import Trunk

WIDTH = 16


def vectors(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).requires_grad_()


def mlp():
    return nn.Sequential(nn.Linear(WIDTH, 32), nn.GELU(), nn.Dropout(0.3), nn.Linear(32, WIDTH))


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(WIDTH, 4, dropout=0.2, batch_first=True)

    def forward(self, x, *, causal):
        mask = torch.ones(x.shape[1], x.shape[1]).triu(1).bool() if causal else None
        return self.attention(x, x, x, attn_mask=mask)[0]


class LSTM(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.LSTMCell(WIDTH, WIDTH)

    def forward(self, steps, state):
        for step in steps.unbind(1):
            state = self.cell(step, state)
        return state  # two tensors in a tuple


class Shared(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return self.layer(torch.relu(self.layer(x)))


class Inner(nn.Module):
    """A checkpoint within what is checkpointed."""

    def __init__(self, depth):
        super().__init__()
        self.layer = mlp()
        self.inside = Inner(depth - 1) if depth else nn.Tanh()

    def forward(self, x):
        return self.layer(OWN(self.inside, x)) + OWN(self.layer, x)


class Dictionary(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = mlp(), mlp()

    def forward(self, batch):
        return {"a": self.a(batch["x"]), "rest": [self.b(batch["x"] * batch["y"][0]), "a string"]}


class PartOfItDetached(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        with torch.no_grad():
            mean = self.layer(x).mean()
        return self.layer(x) - mean, x.detach() * 2


def inplace(x):
    return torch.sin(x).mul_(2).add_(1) * x


def gradient_inside(x):
    y = torch.sin(x).pow(2)
    (g,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    return y + g


def views(x):
    first, second = (x * 2).chunk(2, -1)
    return first.transpose(0, 1).exp(), second.expand_as(second)


def complex_numbers(x):
    return torch.fft.rfft(x).abs().sqrt()


def indexed(x, index):
    return x[index].cumsum(0).softmax(-1)


def half(x):
    with torch.autocast("cpu", torch.bfloat16):
        return torch.tanh(x @ x.transpose(-1, -2))


def with_python_random(x):
    return x.exp() * random.random() + x.tanh() * float(np.random.rand())


x3 = vectors(4, 8, WIDTH)
SEGMENTS = {
    "linear": (nn.Linear(WIDTH, WIDTH), (x3,), {}),
    "mlp with dropout": (mlp(), (x3,), {}),
    "attention, keyword": (Attention(), (x3,), {"causal": True}),
    "attention, other keyword": (Attention(), (x3,), {"causal": False}),
    "convolution": (nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Dropout2d(0.5)), (vectors(2, 3, 8, 8),), {}),
    "max pooling": (nn.Sequential(nn.Conv1d(8, 4, 3), nn.MaxPool1d(2), nn.PReLU()), (x3,), {}),
    "batch norm in eval mode": (nn.Sequential(nn.BatchNorm1d(8), nn.Tanh()).eval(), (x3,), {}),
    "layer norm": (nn.Sequential(nn.LayerNorm(WIDTH), nn.SiLU()), (x3,), {}),
    "lstm cell, two outputs": (LSTM(), (x3, (vectors(4, WIDTH), vectors(4, WIDTH, seed=1))), {}),
    "gru": (nn.GRU(WIDTH, WIDTH, 2, batch_first=True, dropout=0.3), (x3,), {}),
    "transformer layer": (nn.TransformerEncoderLayer(WIDTH, 4, 32, 0.2, batch_first=True), (x3,), {}),
    "shared weights": (Shared(), (x3,), {}),
    "nested once": (Inner(0), (x3,), {}),
    "nested four deep": (Inner(3), (x3,), {}),
    "dictionaries in and out": (Dictionary(), ({"x": x3, "y": [vectors(8, WIDTH)]},), {}),
    "input without grad": (mlp(), (x3.detach(),), {}),
    "a part detached": (PartOfItDetached(), (x3,), {}),
    "in place": (inplace, (x3,), {}),
    "a gradient inside": (gradient_inside, (x3,), {}),
    "views": (views, (x3,), {}),
    "complex numbers": (complex_numbers, (x3,), {}),
    "an index": (indexed, (x3, torch.tensor([3, 0, 0])), {}),
    "autocast inside": (half, (x3,), {}),
    "rrelu": (nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.RReLU()), (x3,), {}),
    "python's and numpy's random": (with_python_random, (x3,), {}),
    "embedding": (nn.Sequential(nn.Embedding(10, WIDTH), mlp()), (torch.arange(10),), {}),
    "trunk": (Trunk(limit=0.5), (vectors(2, 4, 32),), {}),
    "nothing saved": (lambda x: x + 1, (x3,), {}),
}


@pytest.mark.parametrize("name", SEGMENTS)
def test_equal_to_the_plain_run_bit_for_bit(name):
    segment, args, kwargs = SEGMENTS[name]
    result = divergence(segment, *args, strategy=OWN, **kwargs)
    assert result.equal, str(result)
    assert result.rows


def test_it_is_a_strategy_beside_torchs():
    assert OWN not in STRATEGIES and all(isinstance(OWN, type(strategy)) for strategy in STRATEGIES)
    assert str(divergence(mlp(), x3, strategy=OWN)).startswith("own, both ways compared: equal")


# Stages


def private(generator):
    """A segment that draws from a generator of its own, which it holds as modules do."""

    class Drawing(nn.Module):
        def __init__(self):
            super().__init__()
            self.generator = generator

        def forward(self, x):
            kind = type(generator)
            if kind is torch.Generator:
                return x * torch.rand(x.shape, generator=generator)
            if kind is random.Random:
                return x * x.new_tensor([generator.random() for _ in range(WIDTH)])
            return x * torch.as_tensor(generator.standard_normal(WIDTH), dtype=x.dtype)

    return Drawing()


@pytest.mark.parametrize("strategy", [NAIVE, TORCH_REPLAYED, ALL_REPLAYED, OWN], ids=str)
@pytest.mark.parametrize(
    ("draw", "first"),
    [
        (lambda x: F.dropout(x.tanh(), 0.5), TORCH_REPLAYED),
        (lambda x: x.exp() * torch.randn_like(x), TORCH_REPLAYED),
        (lambda x: torch.tanh(x * random.random()), ALL_REPLAYED),
        (lambda x: x * torch.as_tensor(np.random.rand(WIDTH), dtype=x.dtype), ALL_REPLAYED),
    ],
)
def test_each_stage_replays_more_than_the_one_before(strategy, draw, first):
    stages = [NAIVE, TORCH_REPLAYED, ALL_REPLAYED, OWN]
    result = divergence(draw, x3, strategy=strategy)
    assert result.outcome == ("fine" if stages.index(strategy) >= stages.index(first) else "silent")
    assert result.equal == (result.outcome == "fine")


@pytest.mark.parametrize(
    "generator",
    [torch.Generator(), random.Random(0), np.random.default_rng(0), np.random.RandomState(0)],
    ids=lambda generator: type(generator).__name__,
)
def test_a_private_generator_is_replayed_if_it_is_named(generator):
    segment = private(generator)
    assert divergence(segment, x3, strategy=OWN).outcome == "silent"
    assert divergence(segment, x3, strategy=OwnCheckpoint(generators=(generator,))).equal


def test_streams_go_on_from_where_the_forward_left_them():
    def draws(strategy):
        torch.manual_seed(0), random.seed(0), np.random.seed(0)
        output = strategy(lambda x: with_python_random(F.dropout(x)), x3)
        after_forward = torch.rand(1), random.random(), np.random.rand()
        output.sum().backward()
        return after_forward, (torch.rand(1), random.random(), np.random.rand())

    assert draws(PLAIN) == draws(OWN)


@pytest.mark.parametrize("generator", [0, "torch", torch.rand, random.SystemRandom()])
def test_what_is_no_generator_is_refused(generator):
    with pytest.raises(TypeError, match="a generator is a torch.Generator"):
        OwnCheckpoint(generators=(generator,))


def test_an_unknown_stage_is_refused():
    with pytest.raises(ValueError, match="'nothing', 'torch' or 'everything'; got 'all'"):
        OwnCheckpoint(replays="all")


# Both ways


class Flips(nn.Module):
    """The first arm runs in the forward, the next in the recomputation, any others in later ones."""

    def __init__(self, *arms):
        super().__init__()
        self.arms = list(arms)

    def forward(self, x):
        arm = self.arms.pop(0)
        return arm(x)


LESS, MORE, OTHER = torch.tanh, lambda x: torch.tanh(x).sin(), lambda x: torch.tanh(x[:2]).sum() + x


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        (LESS, MORE, "during forward: 1, and in recomputation: 2"),
        (MORE, LESS, "during forward: 2, and in recomputation: 1"),
        (LESS, OTHER, r"number 1 has different metadata: \[4, 8, 16\] float32 on cpu in forward, \[2, 8, 16\]"),
        (LESS, lambda x: torch.tanh(x.double()).float(), "different metadata: .* float64 on cpu in recomputation"),
        (LESS, lambda x: x, "during forward: 1, and in recomputation: 0"),
    ],
)
def test_it_counts_both_ways(before, after, message):
    with pytest.raises(RecomputationMismatch, match=message):
        OWN(Flips(before, after), x3).sum().backward()


def test_torch_sees_one_way_only():
    NON_REENTRANT(Flips(LESS, MORE), x3).sum().backward()
    with pytest.raises(torch.utils.checkpoint.CheckpointError):
        NON_REENTRANT(Flips(MORE, LESS), x3).sum().backward()


def test_without_comparison_more_passes_and_less_has_nothing_to_give():
    ALL_REPLAYED(Flips(LESS, MORE), x3).sum().backward()
    with pytest.raises(RecomputationMismatch, match="ended before the saved tensor that backward asks for"):
        ALL_REPLAYED(Flips(MORE, LESS), x3).sum().backward()


@pytest.mark.parametrize("after", [MORE, OTHER])
def test_what_was_refused_once_is_not_handed_out_at_the_next_backward(after):
    output = OWN(Flips(LESS, after, after), x3).sum()
    for _ in range(2):
        with pytest.raises(RecomputationMismatch):
            output.backward()


def test_after_an_interruption_the_next_backward_runs_the_segment_again():
    def interrupted(x):
        raise KeyboardInterrupt(LESS(x))

    x = vectors(4, WIDTH)
    output = OWN(Flips(LESS, interrupted, MORE), x).sum()
    with pytest.raises(KeyboardInterrupt):
        output.backward()
    with pytest.raises(RecomputationMismatch):  # not a gradient out of the run that was interrupted
        output.backward()


def test_the_mismatch_is_read_as_torchs_is():
    results = [divergence(Flips(*arms), x3, strategy=OWN) for arms in ((LESS, OTHER),)]
    assert [result.outcome for result in results] == ["metadata"]
    with pytest.raises(RecomputationMismatch) as caught:
        OWN(Flips(MORE, LESS), x3).sum().backward()
    assert Mismatch.of(caught.value) == Mismatch("count", 2, 1)


# Ways of differentiating


def both(differentiate):
    """What `differentiate(strategy)` gives plainly and with the checkpoint."""
    torch.manual_seed(0)
    plain = differentiate(PLAIN)
    torch.manual_seed(0)
    own = differentiate(OWN)
    assert len(plain) == len(own) and all(map(same_bits, plain, own))


def test_autograd_grad():
    layer = mlp()
    both(lambda run: torch.autograd.grad(run(layer, x3).pow(2).sum(), [x3, *layer.parameters()]))


def test_backward_for_chosen_inputs():
    layer = mlp()

    def chosen(run):
        layer.zero_grad()
        run(layer, x3).pow(2).sum().backward(inputs=[layer[0].weight])
        assert layer[3].weight.grad is None
        return [layer[0].weight.grad]

    both(chosen)


def test_several_backwards_through_one_graph():
    layer = mlp()

    def twice(run):
        output = run(layer, x3)
        first = torch.autograd.grad(output.sum(), x3, retain_graph=True)
        return [*first, *torch.autograd.grad(output.pow(2).sum(), x3)]

    both(twice)


def test_a_backward_for_each_output():
    layer = LSTM()

    def each(run):
        h, c = run(layer, x3, (x3[:, 0], x3[:, 1]))
        return [*torch.autograd.grad(h.sum(), x3, retain_graph=True), *torch.autograd.grad(c.sum(), x3)]

    both(each)


def test_double_backward():
    weight = vectors(WIDTH, seed=2)

    def second(run):
        (g,) = torch.autograd.grad(run(lambda x: torch.tanh(x * weight).pow(3), x3).sum(), x3, create_graph=True)
        return [g, *torch.autograd.grad(g.pow(2).sum(), [x3, weight])]

    both(second)


def test_saved_tensors_may_be_read_twice():
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, g):
            return ctx.saved_tensors[0] * g + ctx.saved_tensors[0] * g

    both(lambda run: torch.autograd.grad(run(lambda x: Twice.apply(x.sin()), x3).sum(), x3))


def test_autocast_is_as_it_was_in_the_forward():
    layer = mlp()

    def mixed(run):
        with torch.autocast("cpu", torch.bfloat16):
            output = run(layer, x3)
        return torch.autograd.grad(output.float().sum(), x3)

    both(mixed)
    assert not torch.is_autocast_enabled("cpu")


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_without_grad_there_is_nothing_to_recompute(mode):
    calls = []
    with mode():
        output = OWN(lambda x: calls.append(1) or x.tanh(), x3)
    assert len(calls) == 1 and same_bits(output, x3.detach().tanh()) and not output.requires_grad


def test_an_argument_changed_in_place_is_noticed_as_in_a_plain_run():
    for run in (PLAIN, OWN):
        middle = x3 * 2
        output = run(lambda m: m.sin(), middle)
        middle.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            output.sum().backward()


def doubled_result(x):
    y = x.tanh()
    return y.mul_(2)


def doubled_input(x):
    y = x * 2
    z = y.sin()
    y.mul_(2)
    return z


def doubled_behind_autograds_back(x):
    y = x.tanh()
    y.detach().mul_(2)
    return y


def changed_after_a_nested_one(x):
    y = x * 2
    z = OWN(torch.sin, y)
    y.mul_(2)
    return z


@pytest.mark.parametrize(
    "segment", [doubled_result, doubled_input, doubled_behind_autograds_back, changed_after_a_nested_one]
)
def test_an_activation_changed_in_place_after_it_was_saved_is_noticed_as_in_a_plain_run(segment):
    for run in (PLAIN, OWN):
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            run(segment, x3).sum().backward()


@pytest.mark.parametrize("when", [1, 2])
def test_what_the_segment_raises_passes_through_and_streams_are_as_before(when):
    calls = []

    def fails(x):
        calls.append(1)
        if len(calls) == when:
            torch.rand(3)
            raise KeyError("mine")
        return F.dropout(x.tanh(), 0.5)

    output = None
    before = torch.get_rng_state()
    with pytest.raises(KeyError, match="mine"):
        output = OWN(fails, x3)
        before = torch.get_rng_state()
        output.sum().backward()
    if output is not None:
        assert same_bits(before, torch.get_rng_state())
    assert OWN(torch.tanh, x3).sum().backward() is None  # no hook was left behind


# Memory


def test_activations_are_freed_after_the_forward_and_again_as_backward_goes():
    alive = []

    def watched(x):
        for _ in range(4):
            x = torch.sin(x)
            alive.append(weakref.ref(x.untyped_storage()))
        return x.sum()

    def living():
        gc.collect()
        return sum(reference() is not None for reference in alive)

    x = vectors(64, WIDTH)
    kept = watched(x)
    assert living() == 3  # the inputs of sin; the fourth result is summed and gone
    del kept
    alive.clear()
    output = OWN(watched, x)
    assert living() == 0
    output.backward()
    assert len(alive) == 8 and living() == 0


def test_nothing_is_left_of_a_backward_that_needed_a_part():
    middles = []

    def two(x):
        a, b = torch.sin(x), torch.sin(x * 2)
        a, b = torch.exp(a), torch.exp(b)
        middles.extend(weakref.ref(t.untyped_storage()) for t in (a, b))
        return a.sum(), b.sum()

    a, b = OWN(two, x3)
    a.backward()  # b's graph is still there, with the tensors that were recomputed for it
    del a, b
    gc.collect()
    assert [reference() for reference in middles] == [None] * 4


class Stack(nn.Module):
    def __init__(self, run, layers=32, nested=False):
        super().__init__()
        self.run, self.nested = run, nested
        self.layers = nn.ModuleList(nn.Sequential(mlp(), mlp()) for _ in range(layers))

    def forward(self, x):
        for layer in self.layers:
            x = self.run((lambda x, layer=layer: self.run(layer[1], layer[0](x))) if self.nested else layer, x)
        return x


@pytest.mark.parametrize("nested", [False, True])
def test_peak_memory_is_that_of_torchs_own(nested):
    x = vectors(256, WIDTH)
    plain, torchs, own = (footprint(Stack(run, nested=nested), x) for run in (PLAIN, NON_REENTRANT, OWN))
    assert own.peak < 1.25 * torchs.peak and own.kept < 1.25 * torchs.kept
    assert own.peak < 0.3 * plain.peak


def test_a_nested_checkpoint_holds_on_to_no_activation_of_the_outer_one():
    x = vectors(256, WIDTH)
    inner, flat = (footprint(lambda x, f=f: OWN(f, x), x) for f in (Stack(OWN, 8), Stack(PLAIN, 8)))
    assert inner.kept < flat.kept + 100 and inner.peak < 0.6 * flat.peak


def test_modules_hooks_and_flags_are_left_alone():
    layer = mlp()
    state = {name: value.clone() for name, value in layer.state_dict().items()}
    with contextlib.suppress(RecomputationMismatch):
        OWN(Flips(LESS, MORE), x3).sum().backward()
    OWN(layer, x3).sum().backward()
    assert all(same_bits(value, state[name]) for name, value in layer.state_dict().items())
    assert torch.is_grad_enabled() and not torch.is_autocast_enabled("cpu")
