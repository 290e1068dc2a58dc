"""The network in replicas, what a lost mask does to one step of it, and layers that a draw decides on."""

from dataclasses import replace

import pytest
import torch
from matplotlib.text import Text

from recompute_lab.instruments.checkpointing import NON_REENTRANT, PLAIN, Strategy
from recompute_lab.instruments.directions import Direction, mean_cosine
from recompute_lab.instruments.estimates import Estimate
from recompute_lab.instruments.gradients import divergence
from recompute_lab.instruments.own_checkpoint import NAIVE, OwnCheckpoint
from recompute_lab.lessons.dropout import (
    LOST,
    OFF,
    TREATMENTS,
    EachLayer,
    divergences,
    layer_drop_outcomes,
    network_gradients,
)
from recompute_lab.specimens.dropout_net import SEGMENTS, DropoutNet
from recompute_lab.specimens.layer_drop import LayerDropNet, layers_run
from recompute_lab.views.dropout import divergence_by_layers

SEEDS = (3, 4, 3)


def batch(replicas=3, images=6):
    generator = torch.Generator().manual_seed(0)
    drawn = torch.rand(images, 64, generator=generator), torch.randint(10, (images,), generator=generator)
    return tuple(part.expand(replicas, *part.shape) for part in drawn)


def seeded(net, run=PLAIN, segment="block"):
    torch.manual_seed(0)
    return net.gradients(*batch(len(net.embed.weight)), run=run, segment=segment)


# The network


def test_a_replica_is_its_seed_whatever_the_others_are():
    together, alone = DropoutNet(SEEDS, 0.0, 3), DropoutNet([4], 0.0, 3)
    images, _ = batch()
    torch.testing.assert_close(together(images)[1:2], alone(images[1:2]))
    assert torch.equal(together(images)[0], together(images)[2])
    assert together(images).shape == (3, 6, 10)


def test_a_replicas_gradient_is_of_its_own_loss():
    net, (images, labels) = DropoutNet(SEEDS, 0.0, 2), batch()
    net.losses(images, labels)[1].backward()
    assert all(p.grad[0].abs().max() == 0 and p.grad[1].abs().max() > 0 for p in net.parameters())


@pytest.mark.parametrize(
    ("stochastic", "expected"), [(0, "........"), (2, "...x...x"), (3, "..x..x.x"), (8, "xxxxxxxx"), (None, "xxxxxxxx")]
)
def test_stochastic_blocks_are_spread_evenly(stochastic, expected):
    net = DropoutNet([0], 0.5, 8, stochastic)
    assert "".join("x" if block.noise else "." for block in net.blocks) == expected


def test_what_the_network_cannot_be_is_refused():
    with pytest.raises(ValueError, match="of 2 blocks, 3"):
        DropoutNet([0], 0.5, 2, 3)
    with pytest.raises(ValueError, match="one of block, trunk, loss"):
        DropoutNet([0], 0.5, 2).losses(*batch(1), segment="layer")


def test_replicated_copies_one_replica():
    net = DropoutNet(SEEDS, 0.5, 4, 2)
    copy = net.replicated(1, 5)
    assert [bool(block.noise) for block in copy.blocks] == [bool(block.noise) for block in net.blocks]
    for mine, theirs in zip(net.parameters(), copy.parameters(), strict=True):
        assert len(theirs) == 5 and all(torch.equal(mine[1], each) for each in theirs)


# One step of it


@pytest.mark.parametrize("segment", SEGMENTS)
@pytest.mark.parametrize("reentrant", [True, False])
def test_a_replayed_mask_changes_no_bit(segment, reentrant):
    net = DropoutNet(SEEDS, 0.5, 3)
    assert torch.equal(seeded(net), seeded(net, Strategy("", reentrant), segment))


@pytest.mark.parametrize("segment", SEGMENTS)
@pytest.mark.parametrize("p", [0.0, 0.5])
def test_a_lost_mask_changes_gradients_unless_nothing_is_dropped(segment, p):
    net = DropoutNet(SEEDS, p, 3)
    plain = seeded(net)
    ways = [LOST, Strategy("", True, preserve_rng_state=False), NAIVE]
    others = [seeded(net, run, segment) for run in ways]
    assert all(torch.equal(plain, other) == (p == 0) for other in others)
    assert all(torch.equal(others[0], other) for other in others[1:]) or segment == "block"  # backward runs its own way


@pytest.mark.parametrize("segment", SEGMENTS)
def test_with_dropout_off_in_the_recomputation_nothing_is_drawn_and_nobody_objects(segment):
    net = DropoutNet(SEEDS, 0.5, 3)
    off = seeded(net, OFF, segment)
    state = torch.get_rng_state()
    assert not torch.equal(off, seeded(net)) and torch.equal(state, torch.get_rng_state())


def test_the_parameters_behind_the_trunk_do_not_notice():
    net = DropoutNet(SEEDS, 0.5, 2)
    plain, lost = seeded(net), seeded(net, LOST)
    head = sum(p[0].numel() for p in net.head.parameters())
    assert torch.equal(plain[:, -head:], lost[:, -head:])


def test_divergence_grows_with_p_and_with_the_number_of_layers():
    mean = {(p, k): torch.tensor(divergences(p, k, seeds=range(6))).mean() for p in (0.05, 0.5) for k in (1, 4, 16)}
    for p in (0.05, 0.5):
        assert mean[p, 1] < mean[p, 4] < mean[p, 16]
    for k in (1, 4, 16):
        assert mean[0.05, k] < mean[0.5, k]
    assert divergences(0.3, 4, "replayed", seeds=range(3)) == [0, 0, 0]
    assert divergences(0.3, 0, "lost", seeds=range(3)) == [0, 0, 0]


def test_one_layers_divergence_follows_the_variance_of_two_masks():
    """Two independent masks differ by a number of variance 2 p / (1 - p)."""
    ratios = [torch.tensor(divergences(p, 1)).mean() / (2 * p / (1 - p)) ** 0.5 for p in (0.02, 0.1, 0.3, 0.5)]
    assert max(ratios) / min(ratios) < 1.15


def test_the_figure_of_divergence_labels_every_line():
    made = divergence_by_layers({p: {k: divergences(p, k, depth=2, seeds=(0, 1)) for k in (1, 2)} for p in (0.1, 0.5)})
    shown = {t.get_text() for t in made.findobj(Text)}
    assert {"p = 0.1", "p = 0.5", "1", "2"} <= shown


# Where gradients point on average


@pytest.fixture(scope="module")
def draws():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield network_gradients(trained=60, draws=128)
    torch.set_num_threads(threads)


def test_in_the_network_too_lost_and_off_are_biased_the_same_way(draws):
    lost, off = (draws[name] - draws["baseline"] for name in ("lost", "off"))
    assert mean_cosine(lost, off) > 0.9
    assert torch.equal(draws["replayed"], draws["baseline"])


def test_block_by_block_lost_and_off_have_the_same_expectation(draws):
    """The squares of standard scores are 1 on average where the difference is noise alone."""

    def squares(difference):
        estimate = Estimate.of(difference)
        there = estimate.error > 0  # a unit that is dead on this batch has no gradient at all
        return float((estimate.mean[there] / estimate.error[there]).square().mean())

    assert squares(draws["lost"] - draws["off"]) == pytest.approx(1, abs=0.3)
    assert squares(draws["off"] - draws["baseline"]) > 2


def test_the_mean_gradient_of_a_lost_mask_is_close_to_the_full_one_but_not_it(draws):
    found = {name: Direction.of(each, draws["baseline"]) for name, each in draws.items()}
    for name in ("lost", "off"):
        assert found[name].mean > 0.95 and 0.05 < found[name].bias < 0.4, name
    assert found["lost, loss inside"].mean > 0.99
    assert found["off"].spread < found["baseline"].spread
    assert found["baseline"].single < found["lost"].mean


# Layer drop


def test_layers_run_are_those_that_the_network_runs():
    net, run = LayerDropNet(p=0.5), []
    for layer in net.layers:
        layer.linear.register_forward_hook(lambda module, *_: run[-1].add(module))
    torch.manual_seed(7)
    for _ in range(2):
        run.append(set())
        net(torch.ones(1, 16))
    assert [[layer.linear in seen for layer in net.layers] for seen in run] == layers_run(0.5, 8, 7)


@pytest.mark.parametrize(
    ("strategy", "head", "more"),
    [
        (LOST, False, "silent"),
        (LOST, True, "metadata"),
        (replace(LOST, early_stop=False), False, "more"),
    ],
    ids=["layers alone", "with a head", "no early stop"],
)
def test_a_lost_draw_is_loud_one_way(strategy, head, more):
    outcomes = layer_drop_outcomes(strategy, depth=4, head=head, seeds=range(40))
    expected = {"the same": "fine", "others, as many": "silent", "fewer": "count", "more": more}
    # Early stop ends the recomputation before a layer that comes after all that the forward ran: that one is harmless.
    harmless = {("more", "fine")} if more == "silent" else set()
    assert set(outcomes) - harmless == set(expected.items())


def test_a_lost_draw_under_the_reentrant_implementation_is_never_loud():
    strategy = Strategy("", True, preserve_rng_state=False)
    assert {outcome for _, outcome in layer_drop_outcomes(strategy, depth=4, seeds=range(40))} == {"fine", "silent"}


def test_layer_by_layer_a_lost_draw_is_never_silent():
    """A layer that ran and is skipped saves too little; one that was skipped has nothing to recompute."""
    strategy = EachLayer("", False, preserve_rng_state=False)
    outcomes = layer_drop_outcomes(strategy, depth=4, seeds=range(40))
    assert set(outcomes) == {("layer by layer", "count"), ("layer by layer", "fine")}
    reentrant = layer_drop_outcomes(replace(strategy, use_reentrant=True), depth=4, seeds=range(40))
    assert set(reentrant) == {("layer by layer", "silent"), ("layer by layer", "fine")}


@pytest.mark.parametrize("strategy", [NON_REENTRANT, OwnCheckpoint(), EachLayer("", False)], ids=lambda s: s.name)
def test_a_replayed_draw_is_fine(strategy):
    torch.manual_seed(0)
    assert divergence(LayerDropNet(), torch.randn(4, 16).requires_grad_(), strategy=strategy).equal


def test_the_head_tells_ten_digits_apart():
    assert LayerDropNet(head=True, depth=1)(torch.randn(4, 16)).shape == (4, 10)


def test_every_treatment_is_a_segment_and_a_strategy():
    assert all(isinstance(t.run, Strategy) and t.segment in SEGMENTS for t in TREATMENTS.values())
