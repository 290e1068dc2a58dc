"""Each repair of what a forward does twice: statistics bit-equal to the baseline, and nothing left behind."""

import copy
from functools import partial

import pytest
import torch
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm
from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop

from recompute_lab.instruments.state import same_bits
from recompute_lab.repairs.boundary import checkpointed_between, has_batchnorm
from recompute_lab.repairs.idempotent import Idempotent
from recompute_lab.repairs.momentum import momentum_for
from recompute_lab.repairs.recomputation import announced, for_reentrant, recomputing
from recompute_lab.repairs.replay import state_replayed
from recompute_lab.repairs.suppress import buffers_spared
from recompute_lab.specimens.threads import threads

REENTRANT = partial(checkpoint, use_reentrant=True)
NON_REENTRANT = partial(checkpoint, use_reentrant=False)


def no_early_stop(*args, **options):
    with set_checkpoint_early_stop(False):  # not every version of torch has the argument
        return NON_REENTRANT(*args, **options)


IMPLEMENTATIONS = {"reentrant": REENTRANT, "non-reentrant": NON_REENTRANT, "no early stop": no_early_stop}


@pytest.fixture(params=IMPLEMENTATIONS)
def run(request):
    return IMPLEMENTATIONS[request.param]


def net(momentum=0.1) -> nn.Sequential:
    torch.manual_seed(0)
    layers = nn.Linear(6, 8), nn.BatchNorm1d(8, momentum=momentum), nn.Tanh(), nn.Linear(8, 6), nn.BatchNorm1d(6)
    return nn.Sequential(*layers)


def plain(segment, x):
    return segment(x)


def with_contexts(run, context_fn):
    """`run`, whose recomputation is in the second of `context_fn`'s two."""

    def repaired(segment, x):
        if run is REENTRANT:
            return run(for_reentrant(segment, context_fn), x)
        return run(segment, x, context_fn=context_fn)

    return repaired


def nested(run, depth):
    """Checkpoints in checkpoints: `depth` of them around the segment."""

    def wrapped(segment, x):
        for _ in range(depth - 1):
            segment = partial(run, segment)
        return run(segment, x)

    return wrapped


def train(model, run, steps=100, after=lambda: None):
    """Some steps of SGD on one fresh batch each; what the buffers and gradients were after each of them."""
    torch.manual_seed(1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    seen = []
    for step in range(steps):
        x = (torch.randn(16, 6) + step / 50).requires_grad_()
        optimizer.zero_grad()
        run(model, x).pow(2).sum().backward()
        optimizer.step()
        after()
        tensors = [x.grad, *(p.grad for p in model.parameters()), *model.buffers()]
        seen.append([t.detach().clone() for t in tensors])
    return seen


def equal(a, b):
    return all(same_bits(s, t) for one, other in zip(a, b, strict=True) for s, t in zip(one, other, strict=True))


@pytest.fixture(scope="module")
def baseline():
    with threads(1):  # made before the first test's own fixture sets them
        return train(net(), plain)


def test_unrepaired_it_is_not_the_baseline(run, baseline):
    model = net()
    assert not equal(train(model, run), baseline)
    assert model[1].num_batches_tracked == 200


@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("repair", [buffers_spared, state_replayed])
def test_suppressed_or_replayed_in_the_recomputation(run, depth, repair, baseline):
    model = net()
    assert equal(train(model, nested(with_contexts(run, repair(model)), depth)), baseline)


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_idempotent(run, depth, baseline):
    model = net()
    once = Idempotent(model)
    assert equal(train(model, nested(run, depth), after=once.commit), baseline)


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_boundary_moved(run, depth, baseline):
    model = net()
    assert equal(train(model, partial(checkpointed_between, run=nested(run, depth))), baseline)


@pytest.mark.parametrize("repair", [buffers_spared, state_replayed])
def test_two_backwards_through_one_graph(repair):
    model, x = net(), torch.randn(16, 6).requires_grad_()
    expected = copy.deepcopy(model)
    expected(x).sum()
    output = with_contexts(NON_REENTRANT, repair(model))(model, x)
    output.sum().backward(retain_graph=True)
    output.sum().backward()
    assert all(map(same_bits, model.buffers(), expected.buffers()))


@pytest.mark.parametrize("repair", [buffers_spared, state_replayed, lambda model: announced])
@pytest.mark.parametrize("raises_in", [1, 2])
def test_an_exception_leaves_nothing_behind(run, repair, raises_in):
    """In the forward or in the recomputation: the next step is the baseline's."""
    model, calls = net(), []

    def breaks(x):
        calls.append(recomputing())
        x = model(x)
        if len(calls) == raises_in:
            raise InterruptedError
        return torch.tanh(x)

    with pytest.raises(InterruptedError):
        with_contexts(run, repair(model))(breaks, torch.randn(16, 6).requires_grad_()).sum().backward()
    assert len(calls) == raises_in and not recomputing()
    expected = train(copy.deepcopy(model), plain, steps=3)
    if repair in (buffers_spared, state_replayed):
        assert equal(train(model, with_contexts(run, repair(model)), steps=3), expected)


def test_an_exception_in_the_forward_leaves_an_idempotent_module_where_the_next_forward_puts_it_right():
    model, x = net(), torch.randn(16, 6)
    expected, once = copy.deepcopy(model), Idempotent(model)
    with pytest.raises(RuntimeError):
        model[1](model[0](x))  # part of the forward: its statistics have moved
        model(x[:, :3])
    model(x)
    expected(x)
    once.commit()
    # The broken forward's own update is undone; a plain run would have kept it.
    assert all(map(same_bits, model.buffers(), expected.buffers()))


def test_an_idempotent_module_in_eval_mode_and_after_its_removal():
    model, x = net(), torch.randn(16, 6)
    once = Idempotent(model)
    model(x)
    moved = model[1].running_mean.clone()
    model.eval()(x)
    assert same_bits(model[1].running_mean, moved), "an evaluation before the commit sees the statistics of the forward"
    once.remove()
    model.train()(x)
    assert not same_bits(model[1].running_mean, moved)


def test_what_has_no_buffers_cannot_be_made_idempotent():
    with pytest.raises(ValueError, match="no buffers"):
        Idempotent(nn.Linear(2, 2))


def test_recomputing_tells_the_passes_apart(run):
    told = []

    def segment(x):
        told.append(recomputing())
        return torch.tanh(x)

    with_contexts(run, announced)(segment, torch.randn(3, requires_grad=True)).sum().backward()
    assert told == [False, True] and not recomputing()
    told.clear()
    deep = nested(with_contexts(run, announced), 3)
    deep(segment, torch.randn(3, requires_grad=True)).sum().backward()
    assert told[0] is False and all(told[1:]), "the first of all runs is the only one that is no recomputation"


def test_reentrant_tells_calls_apart():
    """Each call of `checkpoint` has a forward of its own, so each gets a wrapper of its own."""
    told = []

    def segment(x):
        told.append(recomputing())
        return torch.tanh(x)

    x = torch.randn(3, requires_grad=True)
    first, second = (REENTRANT(for_reentrant(segment, announced), x) for _ in range(2))
    (first + second).sum().backward()
    assert told == [False, False, True, True]


class ReadThenWritten(nn.Module):
    """Divides by a scale that it has learnt so far, then goes on learning it: [N, 6] -> [N, 6]."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(6, 6)
        self.register_buffer("scale", torch.ones(()))
        self.calls, self.seen = 0, []

    def forward(self, x):
        x = torch.tanh(self.linear(x) / self.scale.clone() * 1.5**self.calls) ** 2
        self.calls += 1
        self.seen.append(float(x.detach().mean()))
        with torch.no_grad():
            self.scale.lerp_(x.std(), 0.5)
        return x


def test_replay_is_right_where_state_is_read_before_it_is_written(run):
    torch.manual_seed(0)
    model = ReadThenWritten()
    expected = train(other := copy.deepcopy(model), plain, steps=20)
    assert not equal(train(copy.deepcopy(model), run, steps=20), expected)
    assert equal(train(model, with_contexts(run, state_replayed(model)), steps=20), expected)
    assert (model.calls, model.seen) == (other.calls, other.seen)


def test_replay_of_spectral_norm(run):
    torch.manual_seed(0)
    model = nn.Sequential(spectral_norm(nn.Linear(6, 6)), nn.Tanh())
    expected = train(copy.deepcopy(model), plain, steps=20)
    assert not equal(train(copy.deepcopy(model), run, steps=20), expected)
    assert equal(train(model, with_contexts(run, state_replayed(model)), steps=20), expected)


class BuildsATable(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(6, 6)

    def forward(self, x):
        if not hasattr(self, "table"):
            self.table = (torch.linspace(0, 1, 6).cos(),)
            x = torch.sin(x)
        return torch.tanh(self.linear(x) * self.table[0])


def test_replay_takes_away_what_was_not_there_at_the_entry():
    torch.manual_seed(0)
    model = BuildsATable()
    expected = train(copy.deepcopy(model), plain, steps=3)
    with pytest.raises(torch.utils.checkpoint.CheckpointError):
        train(copy.deepcopy(model), NON_REENTRANT, steps=3)
    assert equal(train(model, with_contexts(NON_REENTRANT, state_replayed(model)), steps=3), expected)
    assert len(model.table) == 1


@pytest.mark.parametrize("run, raises", [(REENTRANT, False), (NON_REENTRANT, True), (no_early_stop, True)])
def test_why_the_switch_of_batchnorm_is_no_repair(run, raises):
    """Without `track_running_stats` it saves neither running statistic: two tensors fewer per layer."""
    model, passes = net(), []

    def segment(x):
        passes.append(1)
        for layer in model[1::3]:
            layer.track_running_stats = len(passes) == 1
        return model(x)

    loss = run(segment, torch.randn(16, 6).requires_grad_()).sum()
    if raises:
        with pytest.raises(torch.utils.checkpoint.CheckpointError, match="different number|metadata"):
            loss.backward()
    else:
        loss.backward()
        assert model[1].num_batches_tracked == 1


@pytest.mark.parametrize("repair", [buffers_spared, state_replayed])
def test_the_buffers_stay_the_same_objects(run, repair):
    model = net()
    before = list(model.buffers())
    train(model, with_contexts(run, repair(model)), steps=1)
    assert all(a is b for a, b in zip(before, model.buffers(), strict=True))


def test_a_boundary_leaves_batchnorm_outside_and_checkpoints_the_rest():
    stretches = []

    def run(segment, x):
        stretches.append(1)
        return NON_REENTRANT(segment, x)

    model, x = net(), torch.randn(16, 6, requires_grad=True)
    checkpointed_between(model, x, run=run)
    assert len(stretches) == 2  # Linear; Tanh and Linear
    assert has_batchnorm(model) and not has_batchnorm(model[0]) and not has_batchnorm(torch.tanh)


@pytest.mark.parametrize("updates", [1, 2, 3, 5])
@pytest.mark.parametrize("momentum", [0.0, 0.01, 0.1, 0.5, 1.0])
def test_that_many_updates_keep_what_one_keeps(momentum, updates):
    assert (1 - momentum_for(momentum, updates)) ** updates == pytest.approx(1 - momentum)


@pytest.mark.parametrize("momentum, updates", [(None, 2), (1.5, 2), (-0.1, 2), (0.1, 0), ("0.1", 2)])
def test_an_impossible_momentum_is_refused(momentum, updates):
    with pytest.raises(ValueError, match="momentum|update"):
        momentum_for(momentum, updates)


class Assigns(nn.Module):
    """A running mean that is assigned anew in each forward, not written in place."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(6))

    def forward(self, x):
        if self.training:
            self.mean = torch.lerp(self.mean, x.detach().mean(0), 0.1)
        return torch.tanh(x)


def steps(model, run, commit=lambda: None, dtype=torch.float32):
    for step in range(3):
        x = torch.randn(16, 6, generator=torch.Generator().manual_seed(step)).to(dtype).requires_grad_()
        run(model, x).sum().backward()
        commit()
    return [buffer.clone() for buffer in model.buffers()]


def test_idempotent_where_a_buffer_is_assigned_anew(run):
    expected, model = steps(Assigns(), plain), Assigns()
    assert all(map(same_bits, steps(model, run, Idempotent(model).commit), expected))


class Sparse(nn.Module):
    """What it writes is a sparse buffer."""

    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.eye(6).to_sparse())

    def forward(self, x):
        self.seen.mul_(2)
        return torch.tanh(x)


def test_a_sparse_buffer_is_rewound_too(run):
    expected, idempotent, replayed = Sparse(), Sparse(), Sparse()
    steps(expected, plain)
    steps(idempotent, run, Idempotent(idempotent).commit)
    steps(replayed, with_contexts(run, state_replayed(replayed)))
    assert torch.equal(expected.seen.to_dense(), 8 * torch.eye(6))
    for model in (idempotent, replayed):
        assert torch.equal(model.seen.to_dense(), expected.seen.to_dense())


def test_an_idempotent_module_goes_on_from_a_loaded_state(run):
    source, model = net(), net()
    steps(source, plain)
    once = Idempotent(model)
    steps(model, run, once.commit)
    nn.ModuleList([model]).load_state_dict(nn.ModuleList([source]).state_dict())
    assert all(map(same_bits, steps(model, run, once.commit), steps(source, plain)))


def test_an_idempotent_module_may_change_its_dtype(run):
    expected, model = steps(net().double(), plain, dtype=torch.double), net()
    once = Idempotent(model)
    model.double()
    assert all(map(same_bits, steps(model, run, once.commit, torch.double), expected))


def test_idempotent_asks_each_part_for_its_mode(run):
    expected, model = net().eval(), net().eval()
    expected[1].train(), model[1].train()
    assert all(map(same_bits, steps(model, run, Idempotent(model).commit), steps(expected, plain)))


def test_a_buffer_that_nobody_can_write_to_is_left_alone():
    model = net()
    model.register_buffer("mask", torch.ones(1, 1).expand(4, 4))
    Idempotent(model)
    with_contexts(NON_REENTRANT, state_replayed(model))(model, torch.randn(16, 6).requires_grad_()).sum().backward()


def test_between_batchnorms_the_default_needs_no_gradient_of_the_input():
    """The reentrant implementation would cut the first stretch off from the graph."""
    model = net()
    checkpointed_between(model, torch.randn(16, 6)).sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
