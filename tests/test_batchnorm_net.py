"""The network with BatchNorm, its training in a changing light, and a BatchNorm inside nested segments."""

from dataclasses import replace
from itertools import product

import pytest
import torch
from torch.nn import functional as F

from recompute_lab.instruments.checkpointing import NO_EARLY_STOP, NON_REENTRANT, PLAIN, REENTRANT
from recompute_lab.instruments.state import same_bits
from recompute_lab.lessons.batchnorm import nested
from recompute_lab.repairs.boundary import checkpointed_between
from recompute_lab.repairs.recomputation import for_reentrant
from recompute_lab.repairs.suppress import buffers_spared
from recompute_lab.specimens.batchnorm_net import BatchNormNet, Nest
from recompute_lab.specimens.batchnorm_training import HELD_OUT, BatchNormRun, Settings, digest, drifted
from recompute_lab.specimens.digits import digit_images, digit_sequences

BOTH = pytest.mark.parametrize("strategy", [REENTRANT, NON_REENTRANT], ids=lambda s: s.name)
SHORT = Settings(steps=6, drift=1.0)


def taken(run: BatchNormRun) -> list[tuple[float, str]]:
    return [(step.loss, step.gradients) for step in run.history]


def same_statistics(one: BatchNormRun, other: BatchNormRun, counters: bool = True) -> bool:
    pairs = zip(one.history, other.history, strict=True)
    return all(
        same_bits(a.statistics[name].mean, b.statistics[name].mean)
        and same_bits(a.statistics[name].variance, b.statistics[name].variance)
        and (a.statistics[name].tracked == b.statistics[name].tracked or not counters)
        for a, b in pairs
        for name in a.statistics
    )


# Data and network


def test_the_images_are_those_that_the_sequences_are_cut_from():
    images, labels = digit_images()
    patches, same = digit_sequences()
    assert images.shape == (1797, 1, 8, 8) and images.dtype == torch.float32 and labels.dtype == torch.int64
    assert float(images.min()) == 0 and float(images.max()) == 1 and torch.equal(labels, same)
    assert torch.equal(images[5, 0, 2:4, 4:6].flatten(), patches[5, 1 * 4 + 2])


def test_the_network_is_its_seed_and_leaves_torchs_generator_alone():
    before = torch.get_rng_state()
    one, same, other = (BatchNormNet(seed=seed) for seed in (3, 3, 4))
    assert torch.equal(torch.get_rng_state(), before)
    weights = [torch.cat([p.flatten() for p in net.parameters()]) for net in (one, same, other)]
    assert torch.equal(weights[0], weights[1]) and not torch.equal(weights[0], weights[2])
    assert 5_000 < len(weights[0]) < 10_000
    assert one(torch.rand(4, 1, 8, 8)).shape == (4, 10) and list(one.norms()) == ["norm1", "norm2"]


def test_the_segment_is_run_by_what_is_given():
    net, seen = BatchNormNet(), []
    net(torch.rand(4, 1, 8, 8), lambda segment, x: seen.append((segment, x.shape)) or segment(x))
    assert seen == [(net.segment, (4, 16, 4, 4))]


def test_a_monitor_changes_no_value():
    images = torch.rand(8, 1, 8, 8)
    plain, watched = BatchNormNet(), BatchNormNet(monitor=True)
    assert same_bits(plain(images), watched(images))
    watched.zero_grad()
    watched(images).sum().backward()
    monitor = watched.norms()["monitor"]
    assert int(monitor.num_batches_tracked) == 2 and monitor.weight.grad is None


@pytest.mark.parametrize("momentum", [-0.1, 1.1])
def test_a_momentum_out_of_range_is_refused(momentum):
    with pytest.raises(ValueError, match="the weight of a batch, from 0 to 1, or None"):
        BatchNormNet(momentum)


# The drift


def test_without_a_drift_or_at_the_start_images_stay_as_they_are():
    images = digit_images()[0][:3]
    assert torch.equal(drifted(images, 0.0, 0.7), images) and torch.equal(drifted(images, 4.0, 0.0), images)


def test_a_drift_raises_brightness_and_contrast():
    images = torch.tensor([0.0, 1.0])
    assert drifted(images, 1.0, 1.0).tolist() == [1.0, 3.0] and drifted(images, 1.0, 0.5).tolist() == [0.5, 2.0]


def test_batches_and_held_out_images_are_as_bright_as_the_run_is_far():
    run = BatchNormRun(Settings(steps=4, drift=1.0))
    lows = []
    for _ in range(4):
        lows.append(float(run.batch()[0].min()))
        run.step()
    assert lows == [0.0, 0.25, 0.5, 0.75] and float(run._look(run.test_index)[0].min()) == 1.0


# Training


def test_what_is_learned_and_what_is_held_out_are_apart_and_the_same_in_every_run():
    one, other = BatchNormRun(), BatchNormRun(Settings(seed=1))
    assert len(one.test_index) == HELD_OUT
    assert sorted(one.train_index.tolist() + one.test_index.tolist()) == list(range(1797))
    assert torch.equal(one.test_index, other.test_index)


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_a_step_is_what_a_loop_written_by_hand_does(optimizer):
    run = BatchNormRun(replace(SHORT, optimizer=optimizer))
    net = BatchNormNet()
    own = {
        "sgd": torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9),
        "adam": torch.optim.Adam(net.parameters(), lr=0.05),
    }
    order = torch.Generator().manual_seed(1_000_000)
    for number in range(3):
        images, labels = (data[run.train_index] for data in digit_images())
        picks = torch.randint(len(labels), (32,), generator=order)
        own[optimizer].zero_grad()
        loss = F.cross_entropy(net(images[picks] * (1 + number / 6) + number / 6), labels[picks])
        loss.backward()
        own[optimizer].step()
        step = run.step()
        assert (step.number, step.loss) == (number + 1, pytest.approx(loss.item(), abs=1e-5))
        assert torch.allclose(step.statistics["norm2"].mean, net.segment.norm2.running_mean, atol=1e-5)
        assert step.statistics["norm1"].tracked == number + 1


def test_digests_tell_a_single_bit():
    one, other = torch.zeros(3), torch.tensor([0.0, -0.0, 0.0])
    assert digest([one]) == digest([torch.zeros(3)]) != digest([other]) and len(digest([one])) == 16


@BOTH
@pytest.mark.parametrize(
    "settings", [SHORT, replace(SHORT, optimizer="adam", momentum=None, batch=4)], ids=["sgd", "adam"]
)
def test_checkpointed_losses_and_gradients_are_the_plain_runs_bit_for_bit(strategy, settings):
    plain, checkpointed = BatchNormRun(settings).train(), BatchNormRun(settings, strategy).train()
    assert taken(plain) == taken(checkpointed)
    for one, other in zip(plain.net.parameters(), checkpointed.net.parameters(), strict=True):
        assert same_bits(one, other) and same_bits(one.grad, other.grad)
    assert not same_statistics(plain, checkpointed)


def test_equal_digests_are_no_accident():
    losses = [taken(BatchNormRun(replace(SHORT, **change)).train()) for change in ({}, {"seed": 1}, {"drift": 0.0})]
    assert losses[0][0] == losses[2][0] and losses[0][1:] != losses[2][1:] and losses[0][0] != losses[1][0]


@BOTH
def test_the_counter_is_twice_the_number_of_steps(strategy):
    run = BatchNormRun(SHORT, strategy).train()
    assert [s.statistics["norm1"].tracked for s in run.history] == [2, 4, 6, 8, 10, 12]
    assert run.start["norm1"].tracked == 0 and run.start["norm1"].mean.abs().max() == 0


def test_both_implementations_keep_the_same_statistics():
    one, other = (BatchNormRun(SHORT, strategy).train() for strategy in (REENTRANT, NON_REENTRANT))
    assert same_statistics(one, other)


def test_a_run_takes_the_same_course_twice_on_any_number_of_threads(two_threads):
    before = torch.get_rng_state()
    one = BatchNormRun(SHORT).train([3])
    torch.set_num_threads(1)
    two = BatchNormRun(SHORT).train([3])
    assert taken(one) == taken(two) and one.evaluations == two.evaluations and same_statistics(one, two)
    assert torch.equal(torch.get_rng_state(), before)


def test_an_evaluation_is_in_eval_mode_and_changes_nothing():
    run, undisturbed = BatchNormRun(SHORT), BatchNormRun(SHORT).train()
    for _ in range(6):
        run.step()
        run.evaluate()
    assert taken(run) == taken(undisturbed) and same_statistics(run, undisturbed) and run.net.training
    assert [e.step for e in run.evaluations] == [1, 2, 3, 4, 5, 6]
    images, labels = (data[run.test_index] for data in digit_images())
    logits = run.net.eval()(images * 2 + 1).detach()  # the end of the drift
    assert run.evaluations[-1].error == pytest.approx(float((logits.argmax(1) != labels).double().mean()), abs=0.003)
    assert run.evaluations[-1].loss == pytest.approx(float(F.cross_entropy(logits, labels)), abs=1e-4)


def test_probes_are_evaluated_and_the_end_always():
    run = BatchNormRun(SHORT).train([2, 4])
    assert [e.step for e in run.evaluations] == [2, 4, 6] and len(run.history) == 6
    with pytest.raises(ValueError, match="the run has its 6 steps"):
        run.step()


def test_it_learns():
    run = BatchNormRun(Settings(steps=100)).train([1])
    assert run.evaluations[0].error > 0.8 and run.evaluations[-1].error < 0.3


def test_a_rate_that_decays_ends_at_nothing():
    run = BatchNormRun(replace(SHORT, decay=True))
    rates = [run.step() and run.optimizer.param_groups[0]["lr"] for _ in range(6)]
    assert rates == pytest.approx([0.05 * share / 6 for share in (6, 5, 4, 3, 2, 1)])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"optimizer": "lion"}, "one of sgd, adam; got 'lion'"),
        ({"steps": 0}, "got 0 and 32"),
        ({"batch": 1}, "got 6 and 1"),
    ],
)
def test_settings_that_make_no_run_are_refused(change, said):
    with pytest.raises(ValueError, match=said):
        BatchNormRun(replace(SHORT, **change))


# Repairs


def spared(strategy):
    if strategy is REENTRANT:
        return lambda segment, x: REENTRANT(for_reentrant(segment, buffers_spared(segment)), x)
    return lambda segment, x: replace(strategy, context_fn=buffers_spared(segment))(segment, x)


@BOTH
@pytest.mark.parametrize("repair", ["spared", "boundary"])
def test_a_repaired_run_keeps_the_plain_runs_statistics_bit_for_bit(strategy, repair):
    ways = {
        "spared": spared(strategy),
        "boundary": lambda segment, x: checkpointed_between(segment, x, run=strategy),
    }
    plain, repaired = BatchNormRun(SHORT).train(), BatchNormRun(SHORT, ways[repair]).train()
    assert taken(plain) == taken(repaired) and same_statistics(plain, repaired)
    assert plain.evaluations == repaired.evaluations


# Nesting


@pytest.mark.parametrize("depth", range(5))
def test_reentrant_and_without_early_stop_every_segment_adds_an_update(depth):
    for behind in product((False, True), repeat=max(depth - 1, 0)):
        for strategy in (REENTRANT, NO_EARLY_STOP):
            assert nested(strategy, depth, behind)[-1]["norm"].tracked == depth + 1
        assert nested(PLAIN, depth, behind)[-1]["norm"].tracked == 1


@pytest.mark.parametrize("depth", range(5))
def test_non_reentrant_a_segment_adds_an_update_where_it_saves_something_behind_the_inner_one(depth):
    for behind in product((False, True), repeat=max(depth - 1, 0)):
        expected = 2 + sum(behind) if depth else 1
        assert nested(NON_REENTRANT, depth, behind)[-1]["norm"].tracked == expected


@pytest.mark.parametrize("behind", [False, True])
def test_nested_outputs_and_gradients_are_the_plain_ones(behind):
    results = []
    for strategy in (PLAIN, NON_REENTRANT, NO_EARLY_STOP):
        x = torch.randn(16, 4, generator=torch.Generator().manual_seed(0)).requires_grad_()
        module = Nest(3, strategy, [behind] * 2)
        out = module(x)
        out.square().sum().backward()
        results.append((out, x.grad, module.norm.weight.grad))
    for other in results[1:]:
        assert all(map(same_bits, results[0], other))


def test_a_nest_that_cannot_be_is_refused():
    with pytest.raises(ValueError, match="0 at least; got -1"):
        Nest(-1, PLAIN)
    with pytest.raises(ValueError, match="of 3 nested segments 2 contain another one; `behind` has 1"):
        Nest(3, PLAIN, [True])
