"""Facts that the interview cards state and no other test shows: seeds, the bill in memory and compute, checks."""

import copy
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import distributed, nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint_sequential,
    create_selective_checkpoint_contexts,
)
from torch.utils.data import DataLoader
from torch.utils.flop_counter import FlopCounterMode

from recompute_lab import NO_EARLY_STOP, NON_REENTRANT, PLAIN, REENTRANT, divergence, record, same_bits, writes
from recompute_lab.instruments.checkpointing import Strategy
from recompute_lab.instruments.evaluation import run_twice
from recompute_lab.instruments.memory import footprint
from recompute_lab.instruments.segments import in_segments
from recompute_lab.instruments.state import Snapshot
from recompute_lab.lessons.dropout import linear_comparisons, linear_gradients
from recompute_lab.repairs.momentum import momentum_for
from recompute_lab.specimens.kept_things import Cached
from recompute_lab.specimens.linear_dropout import problem
from recompute_lab.specimens.noise import Dropout

BOTH = pytest.mark.parametrize("strategy", [REENTRANT, NON_REENTRANT], ids=lambda strategy: strategy.name)
NOT_REPLAYED = Strategy("not replayed", use_reentrant=False, preserve_rng_state=False)


def leaf(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).requires_grad_()


def dropping(x):
    return F.dropout(x.tanh(), 0.5).sin()


# Seeds and states


def test_a_seed_is_the_start_of_a_stream_and_a_state_a_place_in_it():
    generator = torch.Generator().manual_seed(7)
    first = torch.rand(3, generator=generator)
    state = generator.get_state()
    second = torch.rand(3, generator=generator)
    assert generator.initial_seed() == 7, "it does not say how much has been drawn"
    assert torch.equal(torch.rand(3, generator=generator.manual_seed(7)), first)
    generator.set_state(state)
    assert torch.equal(torch.rand(3, generator=generator), second) and not torch.equal(first, second)
    assert state.numel() * state.element_size() == 5056


def test_reseeding_before_the_recomputation_is_right_at_the_start_of_the_stream_only():
    @contextmanager
    def reseeded():
        torch.manual_seed(0)
        yield

    strategy = Strategy("", False, preserve_rng_state=False, context_fn=lambda: (nullcontext(), reseeded()))
    torch.manual_seed(0)
    assert all(row.equal for row in divergence(dropping, leaf(8, 8), strategy=strategy).rows)
    torch.rand(1)  # somebody has drawn, as in every later segment and every later step
    assert divergence(dropping, leaf(8, 8), strategy=strategy).outcome == "silent"


def reseeding(x):
    torch.manual_seed(0)
    return F.dropout(torch.ones_like(x), 0.5) * x.sin()


def test_a_segment_that_seeds_itself_agrees_with_itself():
    assert divergence(dropping, leaf(8, 8), strategy=NOT_REPLAYED).outcome == "silent"
    assert all(row.equal for row in divergence(reseeding, leaf(8, 8), strategy=NOT_REPLAYED).rows)


def test_a_segment_that_seeds_itself_draws_one_mask_for_ever():
    masks = [reseeding(torch.ones(8, 8)) != 0 for _ in range(3)]
    assert torch.equal(masks[0], masks[1]) and torch.equal(masks[0], masks[2])
    masks = [dropping(torch.ones(8, 8)) != 0 for _ in range(2)]
    assert not torch.equal(*masks)


def test_a_segment_that_seeds_itself_moves_the_stream_for_whoever_draws_next():
    after = []
    for _ in range(2):
        NON_REENTRANT(reseeding, leaf(8, 8)).sum().backward()
        after.append(torch.rand(4))
    assert torch.equal(*after)


@BOTH
def test_a_seed_from_a_counter_inside_the_segment_is_another_one_in_the_recomputation(strategy):
    class Counted(nn.Module):
        calls = 0

        def forward(self, x):
            self.calls += 1
            noise = torch.rand(x.shape, generator=torch.Generator().manual_seed(self.calls))
            return (x.tanh() * (noise > 0.5)).sin()

    assert divergence(Counted(), leaf(8, 8), strategy=strategy).outcome == "silent"


@BOTH
def test_a_generator_seeded_from_the_default_stream_is_replayed_with_it(strategy):
    def noisy(x):
        generator = torch.Generator().manual_seed(int(torch.randint(2**31, ())))
        return (x.tanh() * (torch.rand(x.shape, generator=generator) > 0.5)).sin()

    assert divergence(noisy, leaf(8, 8), strategy=strategy).equal
    assert not torch.equal(noisy(leaf(8, 8)), noisy(leaf(8, 8)))


@BOTH
def test_a_seed_that_comes_as_an_argument_needs_no_replay(strategy):
    def noisy(x, seed):
        noise = torch.rand(x.shape, generator=torch.Generator().manual_seed(seed))
        return (x.tanh() * (noise > 0.5)).sin()

    strategy = Strategy("", strategy.use_reentrant, preserve_rng_state=False)
    for seed in (1, 2):
        assert divergence(noisy, leaf(8, 8), seed, strategy=strategy).equal
    assert not torch.equal(noisy(leaf(8, 8), 1), noisy(leaf(8, 8), 2))


@BOTH
def test_after_a_checkpointed_step_the_stream_stands_where_the_plain_step_leaves_it(strategy):
    def draws(run):
        torch.manual_seed(0)
        output = run(dropping, leaf(8, 8))
        between = torch.rand(1)
        output.sum().backward()
        return [between, torch.rand(1)]

    assert all(map(torch.equal, draws(strategy), draws(PLAIN)))


def resumed(by=None):
    """Six steps with dropout, interrupted after three: the weights at the end, and all masks."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.Linear(8, 8))
    optimizer, masks = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9), []
    net[1].register_forward_hook(lambda module, args, output: masks.append(output == 0))
    torch.manual_seed(1)
    for step in range(6):
        if step == 3 and by is not None:
            stored = copy.deepcopy((net.state_dict(), optimizer.state_dict())), torch.get_rng_state()
            torch.manual_seed(99)  # a new process, with weights and streams of its own
            for parameter in net.parameters():
                nn.init.normal_(parameter)
            net.load_state_dict(stored[0][0]), optimizer.load_state_dict(stored[0][1])
            torch.manual_seed(1) if by == "seed" else torch.set_rng_state(stored[1])
        optimizer.zero_grad()
        net(leaf(4, 8, seed=step)).square().sum().backward()
        optimizer.step()
    return [p.detach() for p in net.parameters()], masks


def test_a_resumed_run_needs_the_streams_state_and_not_its_seed():
    (whole, _), (by_state, _), (by_seed, _) = resumed(), resumed("state"), resumed("seed")
    assert all(map(same_bits, whole, by_state)) and not all(map(same_bits, whole, by_seed))


def test_reseeding_on_resuming_brings_the_first_masks_again():
    (_, whole), (_, masks) = resumed(), resumed("seed")
    assert all(map(torch.equal, masks[:3], masks[3:])) and not all(map(torch.equal, whole[:3], whole[3:]))


# What is saved, and what it costs


def test_what_operators_save():
    x, y, ones = leaf(3, 3), leaf(3, 3, seed=1), torch.ones(3, 3)
    saved = {
        "x + y": lambda: x + y,
        "x * 2": lambda: x * 2,
        "x * y": lambda: x * y,
        "x * a constant tensor": lambda: x * ones,
        "x @ y": lambda: x @ y,
        "tanh": lambda: x.tanh(),
        "dropout": lambda: F.dropout(x, 0.5),
    }
    assert {name: len(record(segment)) for name, segment in saved.items()} == {
        "x + y": 0,
        "x * 2": 0,
        "x * y": 2,
        "x * a constant tensor": 1,
        "x @ y": 2,
        "tanh": 1,
        "dropout": 1,
    }
    result = x.tanh()
    assert torch.equal(result.grad_fn._saved_result, result), "its result, not its input"


def test_memory_for_backward_is_proportional_to_the_batch():
    net = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))
    kept = {rows: footprint(net, leaf(rows, 16)).kept for rows in (8, 16, 32)}
    assert kept[16] == 2 * kept[8] and kept[32] == 4 * kept[8]


def gradients(net, parts):
    net.zero_grad()
    for rows in leaf(16, 8).detach().double().chunk(parts):
        (net(rows).square().mean() / parts).backward()
    return torch.cat([p.grad.flatten() for p in net.parameters()])


def test_micro_batches_add_up_to_the_batch_but_for_batchnorm():
    plain = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8)).double()
    normed = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Linear(8, 8)).double()
    for net, same in ((plain, True), (normed, False)):
        whole, parts = gradients(net, 1), gradients(net, 4)
        error = float((parts - whole).norm() / whole.norm())
        assert error < 1e-12 if same else error > 0.01


def flops(run) -> int:
    counter = FlopCounterMode(display=False)
    with counter:
        run()
    return counter.get_total_flops()


def test_micro_batches_cut_memory_and_cost_no_operations():
    net, x = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16)), leaf(16, 16)

    def in_parts(parts):
        for rows in x.chunk(parts):
            net(rows).sum().backward()

    assert flops(lambda: in_parts(4)) == flops(lambda: in_parts(1))
    assert 4 * footprint(net, x[:4].detach().requires_grad_()).kept == footprint(net, x).kept


@BOTH
def test_a_checkpointed_step_is_four_thirds_of_a_plain_ones_flops(strategy):
    layers = nn.Sequential(*[nn.Sequential(nn.Linear(32, 32), nn.Tanh()) for _ in range(6)])
    x = leaf(16, 32)
    with torch.no_grad():
        forward = flops(lambda: layers(x))
    plain = flops(lambda: layers(x).sum().backward())
    assert forward == 6 * 2 * 16 * 32 * 32 and plain == 3 * forward
    for k in (1, 2, 6):
        assert flops(lambda k=k: in_segments(layers, k, x, strategy).sum().backward()) == 4 * forward


def test_early_stop_spares_a_last_linear_layer():
    net, x = nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 2048)), leaf(16, 64)
    with torch.no_grad():
        forward, first = flops(lambda: net(x)), flops(lambda: net[0](x))
    plain, early, late = (flops(lambda s=s: s(net, x).sum().backward()) for s in (PLAIN, NON_REENTRANT, NO_EARLY_STOP))
    assert plain == 3 * forward and early == plain + first and late == plain + forward
    assert forward == 33 * first and late - early == 32 * first


def test_segments_that_grow_shorter_have_a_lower_peak_than_equal_ones():
    layers, x = [torch.sin] * 36, leaf(8, 4)
    lengths = [8, 7, 6, 5, 4, 3, 2, 1]
    peak = {name: footprint(in_segments, layers, cut, x).peak // x.nbytes for name, cut in
            {"equal": 6, "shorter": lengths, "longer": lengths[::-1]}.items()}  # fmt: skip
    assert sum(lengths) == 36 and peak == {"equal": 14, "shorter": 12, "longer": 18}


def test_checkpoint_sequential_leaves_its_last_segment_plain():
    calls = [0] * 4

    def layer(number):
        def run(x):
            calls[number] += 1
            return x.tanh()

        return run

    checkpoint_sequential([layer(n) for n in range(4)], 2, leaf(3), use_reentrant=False).sum().backward()
    assert calls == [2, 2, 1, 1]


class Counting(TorchDispatchMode):
    """How often each operator ran, backward included."""

    def __init__(self):
        super().__init__()
        self.calls: dict[str, int] = {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        self.calls[name] = self.calls.get(name, 0) + 1
        return func(*args, **(kwargs or {}))


def keeping(*operators):
    """A checkpoint that keeps the results of these operators and recomputes all else."""

    def policy(ctx, operator, *args, **kwargs):
        return CheckpointPolicy.MUST_SAVE if operator in operators else CheckpointPolicy.PREFER_RECOMPUTE

    return Strategy("selective", False, context_fn=partial(create_selective_checkpoint_contexts, policy))


def block(x):
    """Two products, an activation in between, one behind: [N, 16] -> [N, 16]."""
    return (F.gelu(x @ FIRST) @ SECOND).tanh()


FIRST, SECOND = leaf(16, 64), leaf(64, 16, seed=1)
WAYS = {"plain": PLAIN, "full": NON_REENTRANT, "selective": keeping(torch.ops.aten.mm.default)}


def calls(way, operator: str) -> int:
    with Counting() as counting:
        way(block, leaf(32, 16)).sum().backward()
    return counting.calls[operator]


def test_selective_checkpointing_keeps_what_its_policy_names_and_recomputes_the_rest():
    assert calls(WAYS["full"], "mm") > calls(WAYS["selective"], "mm") == calls(PLAIN, "mm")
    assert calls(WAYS["full"], "gelu") == calls(WAYS["selective"], "gelu") > calls(PLAIN, "gelu")


def test_a_policy_that_keeps_products_runs_as_many_as_the_plain_step():
    assert {name: calls(way, "mm") for name, way in WAYS.items()} == {"plain": 6, "full": 8, "selective": 6}
    assert {name: calls(way, "gelu") for name, way in WAYS.items()} == {"plain": 1, "full": 2, "selective": 2}


def test_what_a_policy_keeps_lies_between_full_and_plain():
    kept = {name: footprint(way, block, leaf(32, 16)).kept for name, way in WAYS.items()}
    assert kept["full"] < kept["selective"] < kept["plain"]
    assert divergence(block, leaf(32, 16), strategy=WAYS["selective"]).equal


@pytest.mark.parametrize(("kept", "outcome"), [((), "silent"), ((torch.ops.aten.rand.default,), "fine")])
def test_a_mask_that_the_policy_keeps_is_not_drawn_again(kept, outcome):
    def masked(x):
        return (x.tanh() * (torch.rand(x.shape) > 0.5)).sin()

    strategy = replace(keeping(*kept), preserve_rng_state=False)
    assert divergence(masked, leaf(8, 8), strategy=strategy).outcome == outcome


def test_offloading_runs_nothing_twice():
    calls = []

    def segment(x):
        calls.append(1)
        return dropping(x)

    def offloaded(segment, x):
        with torch.autograd.graph.save_on_cpu():
            return segment(x)

    gradients = []
    for run in (offloaded, PLAIN):
        torch.manual_seed(0)
        x = leaf(8, 8)
        run(segment, x).sum().backward()
        gradients.append(x.grad)
    assert calls == [1, 1] and torch.equal(*gradients)


# Checks


class Passes:
    """The first arm runs in the forward, the second in the recomputation."""

    def __init__(self, *arms):
        self.arms, self.calls = arms, 0

    def __call__(self, x):
        self.calls += 1
        return self.arms[min(self.calls, len(self.arms)) - 1](x)


@pytest.mark.parametrize(
    ("second", "default", "none"),
    [
        (lambda x: x.double().tanh().float(), "metadata", "fine"),
        (lambda x: x.sum(0).tanh() + 0 * x, "metadata", "silent"),
        (lambda x: x.to("meta").tanh(), "metadata", "other"),
        (lambda x: (2 * x).tanh(), "silent", "silent"),
        (lambda x: x.flip(0).tanh(), "silent", "silent"),
        (lambda x: x.t().contiguous().t().tanh(), "fine", "fine"),
        (lambda x: x, "count", "count"),
    ],
    ids=["dtype", "shape", "device", "values", "order", "strides", "number"],
)
def test_the_default_check_sees_metadata_and_none_the_number_alone(second, default, none):
    for check, outcome in (("default", default), ("none", none)):
        strategy = Strategy("", False, determinism_check=check)
        assert divergence(Passes(lambda x: x.tanh(), second), leaf(4, 4), strategy=strategy).outcome == outcome


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
def test_under_reentrant_a_missing_gradient_is_handed_on_until_a_layer_is_not_checkpointed():
    blocks, x = nn.ModuleList(nn.Linear(4, 4) for _ in range(4)), torch.randn(2, 4)
    for strategy, learns in ((REENTRANT, [False, False, True, True]), (NON_REENTRANT, [True] * 4)):
        blocks.zero_grad()
        h = strategy(blocks[1], strategy(blocks[0], x))
        strategy(blocks[3], blocks[2](h)).tanh().sum().backward()
        assert [block.weight.grad is not None for block in blocks] == learns


def test_a_finally_runs_where_early_stop_leaves_and_code_behind_it_does_not():
    told = []

    def segment(x):
        try:
            y = x.tanh()
            told.append("behind")
        finally:
            told.append("finally")
        return y

    NON_REENTRANT(segment, leaf(3)).sum().backward()
    assert told == ["behind", "finally", "finally"]


@BOTH
def test_checkpointing_takes_autograds_check_of_weights_away(strategy):
    def step(run):
        layers, x = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1)), leaf(4, 8)
        output = run(layers, x).sum()
        with torch.no_grad():
            layers[2].weight.mul_(2.0)  # an optimizer's step, between forward and backward
        output.backward()
        return x.grad

    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        step(PLAIN)
    assert step(strategy).norm() > 0


def test_of_a_cache_keys_and_values_have_to_be_put_back_together():
    layer, x = Cached(), torch.randn(32, 16)
    start = Snapshot(layer, x)
    first = layer(x)
    after = Snapshot(layer, x)
    assert start.changes() == ["keys", "values"]
    same = {}
    for left in ((), ("keys",), ("values",)):
        start.restore(keep=left)
        try:
            same[left] = same_bits(layer(x), first)
        except RuntimeError:
            same[left] = False
        after.restore()
    assert same == {(): True, ("keys",): False, ("values",): False}


@BOTH
def test_autocast_is_put_back_for_the_recomputation(strategy):
    linear, seen = nn.Linear(8, 8), []

    def segment(x):
        y = linear(x)
        seen.append(y.dtype)
        return y.tanh().float()

    with torch.autocast("cpu", torch.bfloat16):
        output = strategy(segment, leaf(4, 8))
    output.sum().backward()
    assert seen == [torch.bfloat16, torch.bfloat16]


def test_a_sum_depends_on_its_order():
    a, b, c = torch.tensor([1e8, -1e8, 1.0])
    assert (a + b) + c == 1.0 and a + (b + c) == 0.0


# BatchNorm


def test_the_momenta_for_a_tenth():
    assert momentum_for(0.1) == pytest.approx(0.051, abs=5e-4)
    assert 0.1**0.5 == pytest.approx(0.32, abs=5e-3)
    assert 1 - (1 - 0.1) ** 2 == pytest.approx(0.19)
    assert 1 - (1 - momentum_for(0.1)) ** 2 == pytest.approx(0.1)


@BOTH
def test_batchnorm_in_eval_mode_writes_nothing(strategy):
    net = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Tanh())
    for _ in range(3):
        net(leaf(8, 4))
    assert len(writes(net, leaf(8, 4))) == 3  # the two running statistics, and the counter
    net[1].eval()
    assert len(writes(net, leaf(8, 4))) == 0 and divergence(net, leaf(8, 4), strategy=strategy).equal


def test_frozen_parameters_do_not_freeze_batchnorms_statistics():
    net = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Tanh())
    net[1].requires_grad_(False)
    assert len(writes(net, leaf(8, 4))) == 3


def test_train_on_the_model_ends_the_eval_mode_of_its_parts():
    net = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Tanh())
    net[1].eval()
    assert len(writes(net, leaf(8, 4))) == 0
    net.train()  # as at the start of every epoch
    assert net[1].training and len(writes(net, leaf(8, 4))) == 3


def test_the_root_belongs_to_the_share_that_is_kept():
    kept, ours = 0.9, 0.1
    assert kept**0.5 == pytest.approx(1 - momentum_for(ours))
    assert ours**0.5 > 3 * ours, "applied twice, and each time three times as much"


# Evaluations


def test_a_mean_of_batch_means_depends_on_the_size_of_the_batches():
    right = torch.tensor([1.0] * 8 + [0.0] * 2)
    by_size = {size: torch.stack([part.mean() for part in right.split(size)]).mean().item() for size in (10, 5, 4)}
    assert by_size == {10: pytest.approx(0.8), 5: pytest.approx(0.8), 4: pytest.approx(2 / 3)}
    assert sum(part.sum() for part in right.split(4)) / len(right) == pytest.approx(0.8)


def test_a_dropped_last_batch_leaves_out_other_samples():
    def seen(size):
        return [int(i) for batch in DataLoader(range(10), batch_size=size, drop_last=True) for i in batch]

    assert (len(seen(5)), len(seen(4)), len(seen(3))) == (10, 8, 9)


def test_batchnorm_in_train_mode_scores_a_sample_by_its_company():
    net, x = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)), leaf(8, 4).detach()
    with torch.no_grad():
        assert not torch.allclose(net(x)[:4], net(x[:4]), atol=1e-2)
        net.eval()
        torch.testing.assert_close(net(x)[:4], net(x[:4]), rtol=0, atol=1e-6)


def test_an_evaluation_that_draws_from_the_default_stream_agrees_with_itself():
    torch.manual_seed(0)
    net, x = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5)), leaf(16, 8).detach()

    def mean(net, x):
        return {"mean": net(x).mean().item()}

    assert net.training and run_twice(mean, net, x).agrees
    assert mean(net, x) != mean(net, x), "called twice in a row, it does not"


# Ranks


class Tracker:
    """Keeps the state of a stream of its own, and lends it to torch's default generator."""

    def __init__(self, seed: int):
        self.state = torch.Generator().manual_seed(seed).get_state()

    @contextmanager
    def lent(self):
        before = torch.get_rng_state()
        torch.set_rng_state(self.state)
        try:
            yield
        finally:
            self.state = torch.get_rng_state()
            torch.set_rng_state(before)


class Sharded(nn.Module):
    """Drops some places alike on every rank, then others on each rank by itself: [N, 8] -> [N, 8]."""

    def __init__(self, rank: int):
        super().__init__()
        self.tracker = Tracker(1000 + rank)

    def forward(self, x):
        x = F.dropout(x.tanh(), 0.5)
        with self.tracker.lent():
            return F.dropout(x.exp(), 0.5)


def test_a_tracker_draws_alike_on_all_ranks_outside_and_for_each_rank_inside():
    alike, own = [], []
    for rank in range(2):
        torch.manual_seed(0)
        alike.append(F.dropout(torch.ones(64)))
        with Sharded(rank).tracker.lent():
            own.append(F.dropout(torch.ones(64)))
        alike.append(F.dropout(torch.ones(64)))
    assert torch.equal(alike[0], alike[2]) and torch.equal(alike[1], alike[3]) and not torch.equal(*own)


@BOTH
def test_a_stream_that_a_tracker_lends_is_not_replayed(strategy):
    assert divergence(Sharded(0), leaf(8, 8), strategy=strategy).outcome == "silent"


def test_it_is_the_plain_run_if_the_recomputation_is_given_the_trackers_state_as_well():
    module = Sharded(0)

    def contexts():
        entry = module.tracker.state

        @contextmanager
        def replayed():
            now, module.tracker.state = module.tracker.state, entry
            try:
                yield
            finally:
                module.tracker.state = now

        return nullcontext(), replayed()

    strategy = Strategy("", False, context_fn=contexts)
    assert divergence(module, leaf(8, 8), strategy=strategy).equal


class Twice(nn.Module):
    """A stem, then one block `uses` times, each of them run by `run`: [N, 4] -> [N, 4]."""

    def __init__(self, run, uses: int = 2):
        super().__init__()
        self.stem, self.block = nn.Linear(4, 4), nn.Linear(4, 4)
        self.run, self.uses = run, uses

    def forward(self, x):
        x = self.stem(x)
        for _ in range(self.uses):
            x = self.run(self.block, x).tanh()
        return x


@pytest.fixture
def process_group(tmp_path):
    """One process that is a group: no other is needed for what the wrapper does to gradients."""
    if not distributed.is_available() or not distributed.is_gloo_available():
        pytest.skip("this torch has no gloo")
    store = distributed.FileStore(str(tmp_path / "store"), 1)
    distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


@pytest.mark.parametrize("uses", [1, 2])
@pytest.mark.parametrize("run", [PLAIN, NON_REENTRANT, REENTRANT], ids=lambda strategy: strategy.name)
def test_under_ddp_and_reentrant_a_block_that_is_used_twice_is_ready_twice(run, uses, process_group):
    model = nn.parallel.DistributedDataParallel(Twice(run, uses))
    loss = model(leaf(2, 4)).sum()
    if run is REENTRANT and uses == 2:
        with pytest.raises(RuntimeError, match="marked as ready twice|ready only once"):
            loss.backward()
    else:
        loss.backward()
        assert all(parameter.grad is not None for parameter in model.parameters())


def test_under_reentrant_a_gradient_is_finished_once_for_each_use():
    finished = {}
    for run in (PLAIN, NON_REENTRANT, REENTRANT):
        model, calls = Twice(run), []
        model.block.weight.register_post_accumulate_grad_hook(lambda parameter, calls=calls: calls.append(1))
        model(leaf(2, 4)).sum().backward()
        finished[run.name] = len(calls)
    assert finished == {"plain": 1, "non-reentrant": 1, "reentrant": 2}


# Lost masks


def test_a_lost_mask_keeps_the_noise():
    """The variances that lesson 04 prints, through torch's own checkpoint."""
    case, noise = problem(), Dropout(0.3)
    draws = linear_gradients(case, noise)
    assert len(draws["lost"]) == len(draws["replayed"]) == 20_000
    found = linear_comparisons(case, noise, draws)
    variances = {name: round(row.estimate.variance, 1) for name, row in found.items()}
    assert variances["lost"] == pytest.approx(4.9, abs=0.11) and variances["replayed"] == pytest.approx(4.6, abs=0.11)
