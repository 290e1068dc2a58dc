"""The branching specimens: what each arm computes and saves, and that the last bits decide which."""

import pytest
import torch

from recompute_lab import record, same_bits
from recompute_lab.instruments.nondeterminism import Nudge
from recompute_lab.specimens.branches import BRANCHES, BranchingSegment, RepairedScale
from recompute_lab.specimens.norm_cap import GuardedNormCap, ratios

ALL = [*BRANCHES.values(), RepairedScale]


@pytest.fixture
def vectors():
    """An update whose longest vector is twice as long as its stream, and the stream."""
    update, stream = torch.randn(2, 8, 16)
    factor = (2 * stream.norm(dim=-1) / update.norm(dim=-1)).unsqueeze(-1) * torch.linspace(0.1, 1, 8).unsqueeze(-1)
    return (update * factor).requires_grad_(), stream


def run(kind, limit, vectors):
    torch.manual_seed(1)
    return kind(limit, 16)(*vectors)


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("limit", [0.5, 3.0])
def test_shapes_and_gradients(kind, limit, vectors):
    output = run(kind, limit, vectors)
    assert output.shape == (8, 16)
    output.sum().backward()
    assert vectors[0].grad.isfinite().all()


def test_scales_are_the_norm_caps(vectors):
    for limit in (0.5, 1.5, 3.0):
        expected = torch.tanh(GuardedNormCap(limit)(*vectors))
        for name in ("scale per vector", "scale of full shape"):
            assert same_bits(run(BRANCHES[name], limit, vectors), expected)
        assert same_bits(run(RepairedScale, limit, vectors), expected)


def test_the_gate_multiplies_only_if_a_vector_is_too_long(vectors):
    torch.manual_seed(1)
    gate = BRANCHES["gate"](3.0, 16)
    assert same_bits(gate(*vectors), torch.tanh(vectors[0]))
    gate.limit = 1.0
    assert torch.allclose(gate(*vectors), torch.tanh(vectors[0] * torch.sigmoid(gate.gate(vectors[0]))))


def test_the_route_takes_one_of_two_experts(vectors):
    route = BRANCHES["route"](3.0, 16)
    assert same_bits(route(*vectors), torch.tanh(route.short(vectors[0])))
    route.limit = 1.0
    assert same_bits(route(*vectors), torch.tanh(route.long(vectors[0])))


def test_the_early_exit_leaves_out_the_last_layer(vectors):
    leaving = BRANCHES["early exit"](1.0, 16)
    assert same_bits(leaving(*vectors), torch.tanh(vectors[0]))
    leaving.limit = 3.0
    assert same_bits(leaving(*vectors), torch.tanh(leaving.last(torch.tanh(vectors[0]))))


def test_what_each_arm_saves(vectors):
    expected = {
        # true arm, false arm
        "scale per vector": (["mul", "tanh"], ["tanh"]),
        "scale of full shape": (["mul", "tanh"], ["tanh"]),
        "gate": (["linear", "linear", "sigmoid", "mul", "mul", "tanh"], ["tanh"]),
        "route": (["linear", "linear", "tanh"], ["linear", "linear", "tanh"]),
        "early exit": (["tanh"], ["tanh", "linear", "linear", "tanh"]),
    }
    for name, arms in expected.items():
        for limit, operators in zip((1.0, 3.0), arms, strict=True):
            assert [row.operator for row in record(BRANCHES[name](limit, 16), *vectors)] == operators, (name, limit)


@pytest.mark.parametrize("kind", BRANCHES.values())
@pytest.mark.parametrize("seed", range(3))
def test_on_the_threshold_the_last_bits_decide(kind, seed):
    x = torch.randn(32, 16)
    seen = []
    for ulps in (-8, 8):
        model = BranchingSegment(kind, Nudge(ulps), seed=seed)
        model.stand_on_threshold(x)
        update, stream = model.vectors(x)
        seen.append(bool((ratios(model.noise(update), stream) > model.branch.limit).any()))
    assert seen == [False, True]


def test_weights_depend_on_the_seed_alone():
    before = torch.get_rng_state()
    a, b, c = (BranchingSegment(BRANCHES["gate"], seed=seed) for seed in (1, 1, 2))
    assert all(map(same_bits, a.state_dict().values(), b.state_dict().values()))
    assert not all(map(same_bits, a.state_dict().values(), c.state_dict().values()))
    assert same_bits(before, torch.get_rng_state())


@pytest.mark.parametrize("kind", BRANCHES.values())
def test_a_vector_of_exactly_the_limit_is_not_too_long(kind):
    torch.manual_seed(1)
    update, stream = torch.ones(8, 16), torch.ones(8, 16)
    limit = ratios(update, stream).max().item()
    branches = kind(limit, 16), kind(2 * limit, 16)
    branches[1].load_state_dict(branches[0].state_dict())
    assert same_bits(*(branch(update, stream) for branch in branches))


def test_the_lesson_says_three_layers():
    assert len(BranchingSegment(BRANCHES["gate"]).layers) == 3
