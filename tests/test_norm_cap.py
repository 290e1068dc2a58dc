"""The three caps: where they agree bit for bit, and what a NaN or an infinity does to each."""

import itertools

import pytest
import torch

from recompute_lab.instruments.ledger import record
from recompute_lab.instruments.state import same_bits
from recompute_lab.specimens.norm_cap import GuardedNormCap, NaNKeepingNormCap, NormCap, RepairedNormCap, cap_scale

REPAIRS = [RepairedNormCap, NaNKeepingNormCap]
DTYPES = [torch.float32, torch.bfloat16, torch.float64]
NAN, INF = float("nan"), float("inf")


def run(cap, update, stream):
    """Output, gradient of the update, gradient of the stream, and the flag."""
    update, stream = (t.clone().requires_grad_() for t in (update, stream))
    output = cap(update, stream)
    weights = torch.linspace(0.5, 1.5, output.numel()).view(output.shape).to(output.dtype)
    (output * weights).sum().backward()
    return output.detach(), update.grad, stream.grad, cap.hit


def assert_agree(cap, update, stream, limit, same=same_bits):
    expected = run(GuardedNormCap(limit), update, stream)
    got = run(cap(limit), update, stream)
    assert same(got[0], expected[0]) and same(got[1], expected[1])
    assert got[2] is None and expected[2] is None  # the scale carries no gradient
    assert got[3] is expected[3]
    return expected


def finite_case(dtype, generator):
    shape = tuple(torch.randint(1, 6, (int(torch.randint(1, 4, (), generator=generator)),), generator=generator))
    update, stream = (torch.randn(shape, generator=generator, dtype=torch.float64) for _ in range(2))
    kind = int(torch.randint(0, 5, (), generator=generator))
    smallest = torch.finfo(dtype).smallest_normal
    if kind == 1:
        update[torch.rand(shape, generator=generator) < 0.5] = -0.0
    if kind == 2:
        update = update * smallest  # denormals
    if kind == 3:
        stream = torch.zeros(shape)
    if kind == 4:
        update = update * 1e15
    return update.to(dtype), stream.to(dtype)


@pytest.mark.parametrize("cap", REPAIRS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_repairs_equal_the_guard_on_finite_inputs(cap, dtype):
    generator = torch.Generator().manual_seed(1)
    hits = set()
    for _ in range(300):
        update, stream = finite_case(dtype, generator)
        limit = float(torch.rand((), generator=generator)) * 3 + 1e-3
        hits.add(assert_agree(cap, update, stream, limit)[3])
    assert hits == {False, True}


@pytest.mark.parametrize("cap", REPAIRS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_repairs_equal_the_guard_for_every_pattern_of_hits(cap, dtype):
    stream = torch.ones(4, 8, dtype=dtype)
    for pattern in itertools.product([False, True], repeat=4):
        update = torch.randn(4, 8).clamp(-2, 2).to(dtype) * torch.tensor(pattern).unsqueeze(1).add(0.01).to(dtype)
        expected = assert_agree(cap, update, stream, 0.2)
        assert expected[3] is any(pattern)
        scale = cap_scale(update, stream, 0.2)
        assert ((scale < 1) == torch.tensor(pattern)).all()


def special(dtype, generator):
    """Vectors with numbers of every kind, NaN and infinity included."""
    values = torch.randn(3, 5, generator=generator).to(dtype)
    pool = torch.tensor([NAN, INF, -INF, 0.0, -0.0, 1e-42, 1e20, -1e38, 5.0]).to(dtype)
    where = torch.rand(3, 5, generator=generator) < float(torch.rand((), generator=generator)) * 0.5
    return torch.where(where, pool[torch.randint(0, len(pool), (3, 5), generator=generator)], values)


def same_numbers(a, b):
    """Bit for bit, except that a bfloat16 NaN is only a NaN: multiplying by 1.0 writes torch's own."""
    if a.dtype is torch.bfloat16:
        return same_bits(a.isnan(), b.isnan()) and same_bits(a[~a.isnan()], b[~b.isnan()])
    return same_bits(a, b)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_nan_keeping_repair_equals_the_guard_in_every_case(dtype):
    generator = torch.Generator().manual_seed(2)
    hits, nans = set(), 0
    for _ in range(600):
        update, stream = special(dtype, generator), special(dtype, generator)
        limit = float(torch.rand((), generator=generator)) * 3 + 1e-3
        output, _, _, hit = assert_agree(NaNKeepingNormCap, update, stream, limit, same_numbers)
        hits.add(hit)
        nans += output.isnan().any().item()
    assert hits == {False, True} and nans > 100


@pytest.mark.parametrize("bits", [0x7FC00000, -0x400000, 0x7FC00001])
def test_a_float32_nan_keeps_its_bits(bits):
    update = torch.tensor([[bits, 0x3F800000]], dtype=torch.int32).view(torch.float32)
    stream = torch.full((1, 2), 100.0)
    assert same_bits(NaNKeepingNormCap(1.0)(update, stream), update)


class TestALoneNaN:
    stream = torch.ones(2, 3)
    quiet = torch.tensor([[NAN, 0.1, 0.1], [0.1, 0.1, 0.1]])
    firing = torch.tensor([[NAN, 0.1, 0.1], [9.0, 9.0, 9.0]])

    @pytest.mark.parametrize("cap", [GuardedNormCap, NaNKeepingNormCap])
    def test_stays_alone_where_nothing_fires(self, cap):
        assert same_bits(cap(1.0)(self.quiet, self.stream), self.quiet)

    @pytest.mark.parametrize("cap", [GuardedNormCap, NaNKeepingNormCap])
    def test_spreads_over_its_vector_where_another_fires(self, cap):
        output = cap(1.0)(self.firing, self.stream)
        assert output[0].isnan().all() and output[1].isfinite().all()

    @pytest.mark.parametrize("update", [quiet, firing], ids=["quiet", "firing"])
    def test_spreads_over_its_vector_under_the_plain_repair(self, update):
        output = RepairedNormCap(1.0)(update, self.stream)
        assert output[0].isnan().all() and output[1].isfinite().all()


@pytest.mark.parametrize("cap", [GuardedNormCap, *REPAIRS])
def test_an_infinity_fires_and_becomes_nan(cap):
    cap = cap(1.0)
    output = cap(torch.tensor([[INF, 2.0]]), torch.ones(1, 2))
    assert cap.hit and output[0, 0].isnan() and output[0, 1] == 0


def test_past_float32s_squares_the_plain_repair_differs_as_its_docstring_says():
    huge = torch.full((1, 2), 1e20)
    assert same_bits(GuardedNormCap(1.0)(huge, huge), huge)
    assert same_bits(NaNKeepingNormCap(1.0)(huge, huge), huge)
    assert RepairedNormCap(1.0)(huge, huge).isnan().all()


@pytest.mark.parametrize("cap", [GuardedNormCap, *REPAIRS])
def test_no_vector_is_longer_than_allowed(cap):
    update, stream = torch.randn(50, 8) * 10, torch.randn(50, 8)
    output = cap(0.5)(update, stream)
    assert (output.norm(dim=-1) <= 0.5 * stream.norm(dim=-1) * (1 + 1e-5)).all()
    short = update.norm(dim=-1) < 0.5 * stream.norm(dim=-1)
    assert same_bits(output[short], update[short])
    assert torch.allclose(nn_direction(output), nn_direction(update), atol=1e-5)


def nn_direction(vectors):
    return torch.nn.functional.normalize(vectors, dim=-1)


@pytest.mark.parametrize("size", [0.01, 100.0], ids=["not firing", "firing"])
@pytest.mark.parametrize(
    ("cap", "saved"), [(GuardedNormCap, (0, 1)), (RepairedNormCap, (1, 1)), (NaNKeepingNormCap, (1, 1))]
)
def test_only_the_guards_count_depends_on_the_data(cap, saved, size):
    update, stream = (torch.ones(2, 4) * size).requires_grad_(), torch.ones(2, 4)
    assert len(record(cap(1.0), update, stream)) == saved[size > 1]


@pytest.mark.parametrize("cap", [GuardedNormCap, *REPAIRS])
def test_the_flag_is_written_by_every_pass(cap):
    cap, ones = cap(1.0), torch.ones(2, 4)
    flags = []
    for size in (0.5, 2.0, 0.5):
        cap(ones * size, ones)
        flags.append(cap.hit)
    assert flags == [False, True, False] and all(type(flag) is bool for flag in flags)


@pytest.mark.parametrize("limit", [0, -1.0, NAN])
def test_a_limit_is_positive(limit):
    with pytest.raises(ValueError, match="must be positive"):
        NormCap(limit)


def test_the_scale_is_float32_without_gradient():
    scale = cap_scale(torch.ones(2, 3, 4, requires_grad=True).bfloat16(), torch.ones(2, 3, 4), 0.5)
    assert (scale.dtype, scale.shape, scale.requires_grad) == (torch.float32, (2, 3), False)
    assert torch.allclose(scale, torch.tensor(0.5))
