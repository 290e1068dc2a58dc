"""The trunk saves 160 tensors, one more per cap that fires: and torch itself says 162 and 161."""

import warnings

import pytest
import torch
from torch.nn.functional import cross_entropy
from torch.utils.checkpoint import CheckpointError, checkpoint

from recompute_lab.instruments.checkpointing import NON_REENTRANT, STRATEGIES, Mismatch, passes
from recompute_lab.instruments.gradients import divergence
from recompute_lab.instruments.ledger import align, record, unmatched
from recompute_lab.instruments.nondeterminism import Nudge
from recompute_lab.specimens import norm_cap
from recompute_lab.specimens.norm_cap import GuardedNormCap, NaNKeepingNormCap, RepairedNormCap
from recompute_lab.specimens.trunk import DigitClassifier, Trunk

FIRES, RESTS = 0.1, 100.0  # limits below and above every vector's ratio
SPLIT = {1: 4, 2: -4}  # a few units in the last place up in forward, down in recomputation


def stream():
    return torch.randn(2, 16, 32, requires_grad=True)


def noisy_trunk(cap=GuardedNormCap, ulps=SPLIT):
    nudge = Nudge(ulps)
    trunk = Trunk(cap, limit=FIRES, noise=nudge)
    return trunk, nudge, nudge.counted(trunk)


def test_160_161_and_162():
    x = stream()
    for caps in (0, 1, 2):
        assert len(record(Trunk(limit=RESTS, caps_in_a_row=caps), x)) == 160
    assert len(record(Trunk(limit=FIRES, caps_in_a_row=1), x)) == 161
    _, _, segment = noisy_trunk(ulps={1: 4})
    assert len(record(segment, x)) == 162
    _, _, segment = noisy_trunk(ulps={1: -4})
    assert len(record(segment, x)) == 161


@pytest.mark.parametrize("blocks", [1, 3, 8])
def test_each_block_saves_twenty(blocks):
    assert len(record(Trunk(limit=RESTS, blocks=blocks), stream())) == 20 * blocks


@pytest.mark.parametrize("cap", [RepairedNormCap, NaNKeepingNormCap])
def test_a_repaired_trunk_saves_the_same_number_for_every_pattern_of_hits(cap):
    x = stream()
    counts = {len(record(Trunk(cap, limit=limit), x)) for limit in (1e-3, FIRES, 0.24, 0.3, RESTS)}
    counts |= {len(record(noisy_trunk(cap, {1: ulps})[2], x)) for ulps in (-4, 4)}
    assert counts == {162}


def test_torch_says_162_and_161():
    _, _, segment = noisy_trunk()
    with pytest.raises(CheckpointError) as caught:
        checkpoint(segment, stream(), use_reentrant=False).sum().backward()
    assert Mismatch.of(caught.value) == Mismatch("count", 162, 161)
    assert str(Mismatch.of(caught.value)) == "162 tensors saved in forward, 161 in recomputation"


def test_the_odd_one_out_is_the_second_caps_multiplication():
    _, _, segment = noisy_trunk()
    both = passes(segment, stream())
    assert (len(both.forward), len(both.recomputation), both.mismatch) == (162, 161, Mismatch("count", 162, 161))
    ((forward, again),) = unmatched(align(both.forward, both.recomputation))
    assert again is None
    assert (forward.operator, forward.shape, forward.file) == ("mul", (2, 16, 1), norm_cap.__file__)
    assert "update * scale" in open(forward.file).read().splitlines()[forward.line - 1]


@pytest.mark.parametrize("cap", [RepairedNormCap, NaNKeepingNormCap])
def test_a_repaired_trunk_survives_the_same_noise(cap):
    _, _, segment = noisy_trunk(cap)
    both = passes(segment, stream())
    assert both.error is None
    assert len(both.forward) == len(both.recomputation) == 162
    assert unmatched(align(both.forward, both.recomputation)) == []


def test_the_flag_is_what_the_recomputation_wrote():
    trunk, nudge, segment = noisy_trunk(RepairedNormCap)
    first, second = trunk.blocks[0].caps
    output = checkpoint(segment, stream(), use_reentrant=False)
    assert (first.hit, second.hit) == (True, True)
    output.sum().backward()
    assert (first.hit, second.hit) == (True, False)

    nudge.rewind()
    changed = divergence(segment, stream()).changed
    assert [name for name in changed if name.endswith("hit")] == ["segment.blocks.0.caps.1.hit"]
    assert nudge.pass_number == 0


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda s: s.name)
@pytest.mark.parametrize("cap", [GuardedNormCap, RepairedNormCap, NaNKeepingNormCap])
def test_without_noise_every_strategy_agrees(strategy, cap):
    assert divergence(Trunk(cap, limit=FIRES, blocks=2), stream(), strategy=strategy).equal


def test_the_trunk_can_be_trained_within_a_classifier():
    classifier = DigitClassifier(Trunk(RepairedNormCap, blocks=2))
    patches, labels = torch.rand(8, 16, 4), torch.arange(8)
    plain, checkpointed = [], []
    for run, grads in ((None, plain), (NON_REENTRANT, checkpointed)):
        classifier.zero_grad()
        cross_entropy(classifier(patches, run), labels).backward()
        grads += [p.grad.clone() for p in classifier.parameters()]
    assert all(map(torch.equal, plain, checkpointed)) and len(plain) == 2 + 1 + 2 + 2 * 8


def test_the_digits():
    pytest.importorskip("sklearn")
    from recompute_lab.specimens.digits import digit_sequences

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        patches, labels = digit_sequences()
        from sklearn.datasets import load_digits
    assert (patches.shape, patches.dtype, labels.shape, labels.dtype) == (
        (1797, 16, 4), torch.float32, (1797,), torch.int64
    )  # fmt: skip
    assert (patches.min(), patches.max()) == (0, 1)
    image = torch.as_tensor(load_digits().images[7], dtype=torch.float32) / 16
    assert torch.equal(patches[7, 6], image[2:4, 4:6].reshape(-1))  # second row of patches, third from the left


def test_the_digits_are_the_same_where_their_file_is_not_found(monkeypatch):
    pytest.importorskip("sklearn")
    from recompute_lab.specimens import digits

    found = digits.digit_images.__wrapped__()
    monkeypatch.setattr(digits, "find_spec", lambda name: None)
    loaded = digits.digit_images.__wrapped__()
    assert all(torch.equal(*pair) and pair[0].dtype == pair[1].dtype for pair in zip(found, loaded, strict=True))
