"""Noise stays within its bounds, passes gradients on unchanged, and is silent where it says so."""

import pytest
import torch

from recompute_lab.instruments.ledger import record
from recompute_lab.instruments.nondeterminism import Atomics, Nudge, accumulate, atomics_differ, disagreements, moved
from recompute_lab.instruments.state import same_bits

DTYPES = [torch.float32, torch.bfloat16, torch.float64]
INTEGERS = {
    torch.float32: torch.int32,
    torch.bfloat16: torch.int16,
    torch.float64: torch.int64,
    torch.half: torch.int16,
}
SPECIAL = torch.tensor([0.0, -0.0, float("inf"), -float("inf"), float("nan")])


def steps_away(moved, tensor):
    """Signed units in the last place, away from zero: the bits of a float without its sign are in order."""
    integer = INTEGERS[tensor.dtype]
    after, before = ((t.view(integer) & torch.iinfo(integer).max).long() for t in (moved, tensor))
    return after - before


# Atomics


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [1, 7, 512, 40_000])
@pytest.mark.parametrize("shares", [3, 16])
def test_atomics_move_by_few_units(size, dtype, shares, two_threads):
    tensor = (torch.randn(size) * torch.logspace(-20, 20, size)).to(dtype)
    noisy = Atomics(shares)(tensor)
    assert (noisy.dtype, noisy.shape) == (dtype, tensor.shape)
    assert steps_away(noisy, tensor).abs().max() <= shares
    assert (noisy.sign() == tensor.sign()).all()


@pytest.mark.parametrize("size", [100, 200_000])
def test_atomics_never_differ_with_one_thread(size):
    tensor, noise = torch.randn(size), Atomics()
    assert disagreements(lambda: noise(tensor), 8) == 0
    assert not atomics_differ(calls=3)


def test_atomics_never_differ_under_deterministic_algorithms(two_threads):
    tensor, noise = torch.randn(200_000), Atomics()
    torch.use_deterministic_algorithms(True)
    try:
        assert disagreements(lambda: noise(tensor), 8) == 0
        assert not atomics_differ(calls=3)
    finally:
        torch.use_deterministic_algorithms(False)


def test_atomics_leave_infinities_and_nans():
    noisy = Atomics()(SPECIAL)
    assert torch.equal(noisy[:4], SPECIAL[:4]) and noisy[4].isnan()


@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (2, 3)])
def test_atomics_take_any_shape(shape):
    tensor = torch.randn(shape).t() if len(shape) == 2 else torch.randn(shape)
    assert Atomics()(tensor).shape == tensor.shape


@pytest.mark.parametrize("shares", [2, 1, 0, -2])
def test_atomics_need_three_parts(shares):
    with pytest.raises(ValueError, match="fewer than 3 parts"):
        Atomics(shares)


@pytest.mark.parametrize("shape", [(5,), (5, 3)])
def test_accumulate_sums_rows_by_index(shape):
    source, index = torch.randn(shape), torch.tensor([0, 2, 0, 2, 2])
    total = accumulate(source, index, 4)
    assert torch.allclose(total, torch.zeros(4, *shape[1:]).index_add(0, index, source))


# Nudge


@pytest.mark.parametrize("dtype", [*DTYPES, torch.half])
@pytest.mark.parametrize("ulps", [1, 4, -4, 100])
def test_a_nudge_moves_by_exactly_so_many_units(dtype, ulps):
    tensor = torch.cat([torch.randn(500), torch.tensor([1.0, -1.0, 2.0, 0.5])]).to(dtype)
    nudge = Nudge({1: ulps})
    moved = nudge.counted(nudge)(tensor)
    assert (steps_away(moved, tensor) == ulps)[tensor != 0].all()


def test_a_nudge_agrees_with_nextafter():
    tensor, nudge = torch.randn(100), Nudge({1: 1, 2: -1})
    segment = nudge.counted(nudge)
    assert same_bits(segment(tensor), torch.nextafter(tensor, tensor.sign() * float("inf")))
    assert same_bits(segment(tensor), torch.nextafter(tensor, torch.zeros(100)))


@pytest.mark.parametrize("ulps", [3, -3])
@pytest.mark.parametrize("seed", [None, 1])
@pytest.mark.parametrize("dtype", DTYPES)
def test_zeros_infinities_and_nans_are_left_alone(ulps, seed, dtype):
    nudge, tensor = Nudge({1: ulps}, seed), SPECIAL.to(dtype)
    moved = nudge.counted(nudge)(tensor)
    assert same_bits(moved[:4], tensor[:4]) and moved[4].isnan()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_more_units_than_there_are_numbers_lead_to_the_end_and_not_around_it(dtype):
    ones, largest = torch.tensor([1.0, -1.0], dtype=dtype), torch.finfo(dtype).max
    for far in (40_000 if dtype.itemsize == 2 else 2**70, 2**70):
        assert moved(ones, far).tolist() == [largest, -largest]
        assert moved(ones, -far).tolist() == [0, 0]
        signed = Nudge(far, seed=0)(torch.ones(64, dtype=dtype))
        up = Nudge(1, seed=0)(torch.ones(64, dtype=dtype)) > 1
        assert signed.tolist() == [largest if sign else 0 for sign in up.tolist()]
    assert moved(ones, torch.tensor([2**62, -(2**62)])).tolist() == [largest, 0]


@pytest.mark.parametrize("tensor", [torch.ones(2, dtype=torch.int64), torch.ones(2, dtype=torch.complex64)])
def test_what_has_no_last_place_is_refused(tensor):
    for noise in (Nudge(1), Nudge(1, seed=0)):
        with pytest.raises(TypeError, match="the last place can be moved of torch.float64"):
            noise(tensor)


def test_real_noise_of_integers_is_refused():
    with pytest.raises(TypeError, match="floating-point numbers"):
        Atomics()(torch.ones(2, dtype=torch.int64))


def test_parts_of_a_unit_are_refused():
    for ulps in (1.5, torch.tensor([1.5, 0.5])):
        with pytest.raises(TypeError):
            moved(torch.ones(2), ulps)


def test_denormals_move_too():
    tensor, nudge = torch.full((3,), 1e-42), Nudge({1: 5})
    assert (steps_away(nudge.counted(nudge)(tensor), tensor) == 5).all()


def test_seeded_signs():
    tensor = torch.randn(1000)
    first, again, other = (Nudge({1: 2}, seed) for seed in (1, 1, 2))
    a, b, c = (nudge.counted(nudge)(tensor) for nudge in (first, again, other))
    assert same_bits(a, b) and not same_bits(a, c)
    steps = steps_away(a, tensor)
    assert set(steps.tolist()) == {-2, 2} and 400 < (steps > 0).sum() < 600
    first.rewind()
    assert not same_bits(first.counted(first)(tensor), a)  # drawn anew


def test_passes_are_counted_and_rewound():
    nudge, tensor = Nudge({2: 1}), torch.ones(2)
    segment = nudge.counted(lambda x, *, twice: nudge(nudge(x)) if twice else nudge(x))
    moves = [int(steps_away(segment(tensor, twice=True), tensor)[0]) for _ in range(3)]
    assert moves == [0, 2, 0] and nudge.pass_number == 3
    nudge.rewind()
    assert [int(steps_away(segment(tensor, twice=False), tensor)[0]) for _ in range(2)] == [0, 1]


def test_passes_are_counted_from_one():
    with pytest.raises(ValueError, match=r"counted from 1; got \[0, 2\]"):
        Nudge({2: 1, 0: 1})


# Both


def noises():
    nudge = Nudge({1: 3})
    return {"atomics": Atomics(), "nudge": nudge.counted(nudge), "pass without a nudge": Nudge({})}


@pytest.mark.parametrize("name", noises())
@pytest.mark.parametrize("dtype", DTYPES)
def test_gradients_pass_through_unchanged_and_nothing_is_saved(name, dtype):
    x = torch.cat([torch.randn(50), SPECIAL]).to(dtype).requires_grad_()
    noise = noises()[name]
    y = noise(x)
    gradient = torch.randn(55).to(dtype)
    y.backward(gradient)
    assert same_bits(x.grad, gradient)
    noise = noises()[name]
    assert len(record(noise, x)) == 0


def test_disagreements_compares_bits():
    nan = torch.tensor([float("nan")])
    assert disagreements(lambda: nan.clone(), 5) == 0
    signs = iter([0.0, 0.0, -0.0, 1.0])
    assert disagreements(lambda: torch.tensor(next(signs)), 3) == 2
