"""Bytes against cases that can be counted by hand, and against weak references."""

import gc
import weakref

import pytest
import torch
from torch import nn

from recompute_lab.instruments.checkpointing import NON_REENTRANT, PLAIN, REENTRANT
from recompute_lab.instruments.memory import Footprint, footprint
from recompute_lab.instruments.segments import in_segments, root_schedule
from recompute_lab.instruments.timing import seconds
from recompute_lab.views.memory import segments
from recompute_lab.views.style import png

BYTES = 8 * 4 * 4  # one activation, [8, 4] in float32


@pytest.fixture
def x():
    return torch.randn(8, 4, requires_grad=True)


def sines(n):
    def step(x):
        for _ in range(n):
            x = x.sin()
        return x

    return step


@pytest.mark.parametrize("n", [1, 2, 7])
def test_a_chain_of_operators_that_save_their_input(n, x):
    # Kept: each operator's result, the last being the output; the first one's input was there.
    # Most: all of them, the gradient that comes in, the cosine, and their product.
    assert footprint(sines(n), x) == Footprint(n * BYTES, (n + 3) * BYTES, BYTES)


def test_a_result_that_nobody_saves_is_not_kept(x):
    assert footprint(lambda x: x + 1 + 2 + 3, x).kept == BYTES
    assert footprint(lambda x: (x + 1).exp() * 2, x).kept == 2 * BYTES  # exp saves its result


def test_a_linear(x):
    linear = nn.Linear(4, 16)
    result = footprint(linear, x)
    assert result.kept == 8 * 16 * 4  # its output; input and weight were there before
    assert result.gradients == 4 * (16 * 4 + 16 + 8 * 4)  # weight, bias, argument


def test_frozen_parameters_have_no_gradients(x):
    linear = nn.Linear(4, 16).requires_grad_(False)
    assert footprint(linear, x).gradients == BYTES
    assert footprint(nn.Linear(4, 16), x.detach()).gradients == 4 * (16 * 4 + 16)


def test_one_storage_counts_once(x):
    def step(x):
        y = x.exp()
        return y.view(-1).sin(), y.t().cos(), y[:2].sin()  # three views, saved three times

    assert footprint(step, x).kept == BYTES + BYTES + BYTES + BYTES // 4


def test_what_was_there_before_is_not_counted(x):
    buffer = torch.ones(8, 4)

    def step(x):
        return (x * buffer).sum() + (buffer.view(-1)[:4] * x[0]).sum()

    assert footprint(step, x).kept < BYTES


def test_tensors_made_in_the_step_are_counted(x):
    def step(x):
        return x * torch.tensor([[2.0] * 4] * 8) * torch.ones(8, 4)

    assert footprint(step, x).kept == 3 * BYTES  # both factors, and the output


def test_a_storage_that_grows_is_counted_at_its_size(x):
    def step(x):
        grown = torch.empty(0)
        grown.resize_(8, 4).fill_(2.0)
        return x * grown

    assert footprint(step, x).kept == 2 * BYTES


def test_what_the_step_stores_elsewhere_is_held_too(x):
    stash = []

    def step(x):
        stash.append(x.detach().exp())
        return x + 1

    assert footprint(step, x).kept == 2 * BYTES
    assert stash == []  # and afterwards all is as it was


@pytest.mark.parametrize("strategy", [NON_REENTRANT, REENTRANT], ids=str)
def test_checkpointing_keeps_the_output_alone(strategy, x):
    assert footprint(strategy, sines(7), x).kept == BYTES
    assert footprint(PLAIN, sines(7), x).kept == 7 * BYTES


def test_the_checkpointed_chain_comes_to_its_peak_in_backward(x):
    # The whole chain is recomputed, and its last result need not be: early stop.
    assert footprint(NON_REENTRANT, sines(7), x).peak == footprint(sines(7), x).peak


@pytest.mark.parametrize("strategy", [PLAIN, NON_REENTRANT], ids=str)
def test_the_count_agrees_with_weak_references(strategy, x):
    """Proof by other means: which of the chain's storages are alive when forward is over."""
    storages = []

    def step(x):
        for _ in range(5):
            x = x.sin()
            storages.append(weakref.ref(x.untyped_storage()))
        return x

    output = strategy(step, x)
    gc.collect()
    alive = sum(storage() is not None for storage in storages)
    assert alive == (5 if strategy is PLAIN else 1)
    del output
    storages.clear()
    assert footprint(strategy, step, x).kept == alive * BYTES


def test_segments_of_a_chain_keep_their_boundaries(x):
    layers = [torch.sin] * 12
    assert footprint(in_segments, layers, 12, x, PLAIN).kept == 12 * BYTES
    for k in (1, 2, 3, 4, 6, 12):
        result = footprint(in_segments, layers, k, x)
        assert result.kept == k * BYTES
        assert result.peak == (k + 12 // k + 2) * BYTES


def test_uneven_segments_put_the_longer_ones_first(x):
    lengths = []

    def noting(segment, x):
        lengths.append(0)
        return segment(x)

    def layer(x):
        lengths[-1] += 1
        return x

    in_segments([layer] * 11, 4, x, noting)
    in_segments([layer] * 11, [1, 8, 2], x, noting)
    assert lengths == [3, 3, 3, 2, 1, 8, 2]


@pytest.mark.parametrize("k", [1, 3, 6])
def test_segments_give_the_plain_gradients(k, x):
    layers = nn.Sequential(*[nn.Sequential(nn.Linear(4, 4), nn.Tanh()) for _ in range(6)])
    expected = torch.autograd.grad(layers(x).sum(), [x, *layers.parameters()])
    found = torch.autograd.grad(in_segments(layers, k, x).sum(), [x, *layers.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(expected, found, strict=True))


@pytest.mark.parametrize("cut", [0, 4, [1, 1], [3, 0], [-1, 4], []])
def test_a_cut_that_does_not_fit(cut, x):
    with pytest.raises(ValueError, match="1 to 3 segments" if cut in (0, 4) else "add up to 3"):
        in_segments([torch.sin] * 3, cut, x)


def test_the_root_schedule_is_the_minimum():
    assert root_schedule(36) == 6 and root_schedule(25, 4, 1) == 10
    for n, a, b in ((36, 1, 1), (24, 18, 1), (50, 3, 7)):
        k = root_schedule(n, a, b)
        assert all(k * b + n / k * a <= other * b + n / other * a for other in (k / 2, k * 1.01))


def test_all_is_afterwards_as_it_was(x):
    net = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5))
    for parameter in net.parameters():
        parameter.grad = torch.ones_like(parameter)
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    random = torch.get_rng_state()
    footprint(net, x)
    assert all(torch.equal(tensor, before[name]) for name, tensor in net.state_dict().items())
    assert all(bool((p.grad == 1).all()) for p in net.parameters()) and x.grad is None
    assert torch.equal(torch.get_rng_state(), random) and gc.isenabled()
    assert all(not p._post_accumulate_grad_hooks for p in net.parameters())


def test_the_same_again_and_on_more_threads(x):
    net = nn.Sequential(nn.Linear(4, 64), nn.GELU(), nn.Linear(64, 4))
    threads = torch.get_num_threads()
    first = footprint(net, x)
    try:
        torch.set_num_threads(2)
        assert footprint(net, x) == first
    finally:
        torch.set_num_threads(threads)


def test_what_cannot_be_measured(x):
    with pytest.raises(TypeError, match="a step is a callable"):
        footprint(3, x)
    with pytest.raises(ValueError, match="nothing to differentiate"):
        footprint(sines(2), x.detach())

    def fails(x):
        raise KeyError("the step's own")

    with pytest.raises(KeyError, match="the step's own"):
        footprint(fails, x)
    assert gc.isenabled() and footprint(sines(1), x).kept == BYTES


def test_seconds_takes_turns_and_puts_the_threads_back():
    order, threads = [], torch.get_num_threads()
    times = seconds(lambda: order.append("a"), lambda: order.append("b"), rounds=2)
    assert order == ["a", "b"] * 3 and len(times) == 2 and min(times) >= 0
    assert torch.get_num_threads() == threads


def test_seconds_can_take_the_fastest_run():
    columns = []
    (time,) = seconds(lambda: None, rounds=3, of=lambda column: columns.append(column) or min(column))
    assert len(columns[0]) == 3 and time == min(columns[0])  # the run that warms up is not among them


@pytest.mark.parametrize("times", [None, {1: 1.4, 4: 1.5}])
@pytest.mark.parametrize("log", [False, True])
def test_the_figure_shows_every_number_of_segments(times, log, x):
    layers = [torch.sin] * 4
    measured = {k: footprint(in_segments, layers, k, x) for k in (1, 2, 4)}
    plain = footprint(in_segments, layers, 1, x, PLAIN)
    made = segments(plain, measured, BYTES, lambda k: k + 4 / k + 2, times, log=log)
    memory = made.axes[0]
    assert [label.get_text() for label in memory.get_xticklabels()] == ["1", "2", "4"]
    texts = {text.get_text() for text in memory.texts}
    assert {"plain step's peak: 7", "lowest: 6, at k = 2"} <= texts
    assert len(made.axes) == (1 if times is None else 2)
    assert png(made).startswith(b"\x89PNG")
