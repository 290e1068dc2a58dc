"""The linear unit: its formulas, the real checkpointing that is compared with them, and the errors of both."""

import math

import pytest
import torch

from recompute_lab.instruments.checkpointing import NON_REENTRANT, PLAIN, Strategy
from recompute_lab.instruments.directions import Direction, mean_cosine, mean_inner
from recompute_lab.instruments.estimates import Estimate, allowed_errors, paired_difference
from recompute_lab.instruments.own_checkpoint import NAIVE
from recompute_lab.lessons.dropout import LOST, OFF, PENALISED, TREATMENTS, linear_comparisons, linear_gradients
from recompute_lab.specimens.linear_dropout import (
    Problem,
    expected_gradient,
    gradients,
    penalty,
    problem,
    resting_weights,
)
from recompute_lab.specimens.noise import Additive, Dropout, Gaussian, noise_off
from recompute_lab.views.dropout import expected_gradients

NOISES = [Dropout(0.3), Gaussian(0.6), Additive(0.5)]
CASE = problem()
LOST_REENTRANT = Strategy("", use_reentrant=True, preserve_rng_state=False)

every_noise = pytest.mark.parametrize("noise", NOISES, ids=lambda noise: type(noise).__name__)


# Noise


@every_noise
def test_noise_has_the_mean_and_variance_it_says(noise):
    x = torch.linspace(-2, 2, 5, dtype=torch.float64)
    drawn = noise.noisy(x.expand(100_000, -1))
    assert (drawn.mean(0) - x).abs().max() < 0.02
    torch.testing.assert_close(drawn.var(0), noise.variance(x), rtol=0.03, atol=1e-9)


@every_noise
def test_without_noise_as_many_tensors_are_saved_and_nothing_is_drawn(noise):
    x = torch.ones(3, requires_grad=True)
    before = torch.get_rng_state()
    with noise_off():
        assert torch.equal(noise.noisy(x), x)
    assert torch.equal(torch.get_rng_state(), before)
    OFF(noise.noisy, x).sum().backward()  # torch counts, and has no objection


def test_dropout_in_a_module_switched_off_is_loud():
    """torch.nn.Dropout saves its mask in training only: this is why the lesson's own mask stays, all ones."""
    dropout = torch.nn.Dropout(0.5)

    def segment(x):
        y = dropout(x).tanh()
        dropout.train(not dropout.training)
        return y

    with pytest.raises(torch.utils.checkpoint.CheckpointError, match="different number"):
        NON_REENTRANT(segment, torch.ones(3, requires_grad=True)).sum().backward()


def test_the_gaussian_like_a_dropout_has_its_variance():
    x = torch.rand(4)
    torch.testing.assert_close(Gaussian.like(Dropout(0.3)).variance(x), Dropout(0.3).variance(x))


@pytest.mark.parametrize("p", [-0.1, 1, math.nan])
def test_what_is_no_probability_to_drop_is_refused(p):
    with pytest.raises(ValueError, match="lies in"):
        Dropout(p)


# Formulas


@every_noise
@pytest.mark.parametrize("w", [CASE.w, torch.zeros(5, dtype=torch.float64)], ids=["weights", "zero"])
def test_the_formula_is_the_gradient_of_the_expected_loss(noise, w):
    w = w.clone().requires_grad_()
    case = Problem(CASE.x, CASE.y, w.detach())
    loss = (CASE.x @ w - CASE.y).square().mean() + (penalty(case, noise) * w.square()).sum()
    torch.testing.assert_close(torch.autograd.grad(loss, w)[0], expected_gradient(case, noise, True))
    loss = (CASE.x @ w - CASE.y).square().mean()
    torch.testing.assert_close(torch.autograd.grad(loss, w)[0], expected_gradient(case, noise, False))


def test_every_mask_of_a_small_unit_counted():
    """Two inputs, one sample, p = 1/4: the four masks with their probabilities, no simulation."""
    x, y, w = (torch.tensor(v, dtype=torch.float64) for v in ([[1.0, -2.0]], [0.5], [0.3, 0.7]))
    case, noise = Problem(x, y, w), Dropout(0.25)
    chances = torch.tensor([[1 / 16, 3 / 16], [3 / 16, 9 / 16]], dtype=torch.float64)
    z = [(torch.tensor([a, b]) / 0.75 * x[0], chances[a, b]) for a in (0, 1) for b in (0, 1)]
    one = sum(p * 2 * za * (za @ w - y) for za, p in z)
    two = sum(p * q * 2 * zb * (za @ w - y) for za, p in z for zb, q in z)
    torch.testing.assert_close(one, expected_gradient(case, noise, True))
    torch.testing.assert_close(two, expected_gradient(case, noise, False))


@every_noise
@pytest.mark.parametrize("penalised", [True, False])
def test_the_expected_gradient_rests_where_it_says(noise, penalised):
    rest = Problem(CASE.x, CASE.y, resting_weights(CASE, noise, penalised))
    assert expected_gradient(rest, noise, penalised).abs().max() < 1e-12


# Simulation


@every_noise
def test_every_treatment_agrees_with_its_formula_and_not_with_the_other(noise):
    draws = linear_gradients(CASE, noise)
    found = linear_comparisons(CASE, noise, draws)
    allowed = allowed_errors(comparisons=5 * len(found))
    for name, row in found.items():
        assert row.errors < allowed, name
        other = expected_gradient(CASE, noise, name not in PENALISED)
        assert row.estimate.errors_from(other).abs().max() > 30, name
    assert torch.equal(draws["replayed"], draws["baseline"])
    assert found["off"].estimate.variance < 0.6 * found["baseline"].estimate.variance


def test_dropouts_formula_holds_within_three_standard_errors():
    found = linear_comparisons(CASE, Dropout(0.3), linear_gradients(CASE, Dropout(0.3)))
    assert max(row.errors for row in found.values()) < 3


@pytest.mark.parametrize("inside", [False, True])
def test_all_ways_to_lose_a_mask_give_the_same_numbers(inside):
    lost, *others = (gradients(CASE, NOISES[0], run, 100, loss_inside=inside) for run in (LOST, LOST_REENTRANT, NAIVE))
    assert all(torch.equal(lost, other) for other in others)


def test_with_the_loss_inside_the_gradient_is_an_ordinary_one_of_the_second_mask():
    run, noise = [], Dropout(0.3)

    def second_draw(segment, w):  # throws one draw away, as the forward does
        noise.mask((50, *CASE.x.shape))
        run.append(segment)
        return segment(w)

    torch.testing.assert_close(
        gradients(CASE, noise, LOST, 50, loss_inside=True), gradients(CASE, noise, second_draw, 50), rtol=0, atol=0
    )


def test_off_with_the_loss_inside_is_least_squares_without_any_noise():
    each = gradients(CASE, NOISES[0], OFF, 10, loss_inside=True)
    torch.testing.assert_close(each, expected_gradient(CASE, NOISES[0], False).expand(10, -1))


def test_torchs_generator_is_left_alone():
    before = torch.get_rng_state()
    gradients(CASE, NOISES[0], LOST, 10)
    assert torch.equal(torch.get_rng_state(), before)


# Estimates and directions


def test_an_estimate_knows_its_error():
    samples = 3 + 2 * torch.randn(4_000, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    estimate = Estimate.of(samples)
    assert estimate.errors_from(torch.full((3,), 3.0)).abs().max() < allowed_errors(3)
    assert estimate.error.tolist() == pytest.approx([2 / math.sqrt(4_000)] * 3, rel=0.05)
    assert estimate.variance == pytest.approx(12, rel=0.05)
    with pytest.raises(ValueError, match="at least two"):
        Estimate.of(samples[:1])


def test_a_family_of_comparisons_is_allowed_more():
    assert allowed_errors(1, 0.0027) == pytest.approx(3, abs=1e-3)
    assert allowed_errors(20) == pytest.approx(3.48, abs=0.01)


def test_paired_differences_and_students_interval():
    interval = paired_difference([2.0, 4.0, 6.0], [1.0, 1.0, 1.0])  # differences 1, 3, 5: t(0.975, 2) = 4.303
    assert (interval.mean, interval.high - interval.mean) == pytest.approx((3, 4.3027 * 2 / math.sqrt(3)), rel=1e-4)
    assert not interval.excludes_zero and str(interval) == "+3.000 [-1.968, +7.968]"
    assert paired_difference([2, 4.1], [1, 3]).excludes_zero
    with pytest.raises(ValueError, match="two pairs"):
        paired_difference([1], [2])


def test_inner_products_of_means_are_free_of_the_noise_they_share():
    noise = torch.randn(200, 1_000, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    mean = torch.zeros(1_000, dtype=torch.float64)
    mean[0] = 2
    assert mean_inner(noise + mean, noise + mean) == pytest.approx(4, abs=0.6)  # the average's own square: 4 + 5
    assert mean_inner(noise, noise) == pytest.approx(0, abs=0.6)
    assert mean_cosine(noise + mean, 3 * (noise - mean)) == pytest.approx(-1, abs=0.3)
    assert math.isnan(mean_cosine(torch.tensor([[1.0], [-1.0]]), torch.ones(2, 1)))


def test_a_direction_against_a_known_one():
    generator = torch.Generator().manual_seed(3)
    b = torch.tensor([1.0, 0.0]) + 0.1 * torch.randn(4_000, 2, generator=generator)
    g = torch.tensor([1.0, 1.0]) + 0.1 * torch.randn(4_000, 2, generator=generator)
    found = Direction.of(g, b)
    assert (found.mean, found.bias) == pytest.approx((math.sqrt(0.5), 1), abs=0.01)
    assert found.spread == pytest.approx(0.1 * math.sqrt(2), abs=0.01) and 0.6 < found.single < found.mean
    assert Direction.of(b, b).bias == 0 and Direction.of(b, b).mean == pytest.approx(1)


def test_a_single_draw_is_held_against_the_others_mean_not_its_own():
    generator, towards = torch.Generator().manual_seed(0), torch.ones(64) / 2  # of length 4, in noise of length 8
    draws = towards + torch.randn(500, 8, 64, generator=generator)
    few = sum(Direction.of(d, d).single * math.sqrt(mean_inner(d, d)) for d in draws) / 500
    assert few == pytest.approx(float((draws @ towards / draws.norm(dim=2)).mean()), rel=0.03)


def test_the_bias_of_lost_and_off_is_the_penalty_taken_away():
    draws = linear_gradients(CASE, NOISES[0], treatments=("baseline", "lost", "off"))
    taken = -2 * penalty(CASE, NOISES[0]) * CASE.w
    for name in ("lost", "off"):
        assert torch.cosine_similarity((draws[name] - draws["baseline"]).mean(0), taken, dim=0) > 0.999
    assert mean_cosine(draws["lost"] - draws["baseline"], draws["off"] - draws["baseline"]) > 0.999


def test_plain_is_the_baseline():
    assert TREATMENTS["baseline"].run is PLAIN


# Figures


def test_the_figure_of_expected_gradients_has_a_panel_per_treatment():
    noise = NOISES[0]
    rows = linear_comparisons(CASE, noise, linear_gradients(CASE, noise, 100, ("lost", "off")))
    made = expected_gradients(rows, *(expected_gradient(CASE, noise, penalised) for penalised in (True, False)))
    assert [panel.get_title(loc="left") for panel in made.axes] == ["lost", "off"]
