"""One linear unit with noise on its inputs, and what its gradient is on average where the noise is drawn twice.

The loss is (1/n) sum_k (z_k . w - y_k)^2, where z = noisy(x) has the expectation x and independent elements. Backward
multiplies two things: the residual, which comes from the loss, and the noisy input, which the unit saved. With noise A
in the residual and noise B in the input,

    gradient = (2/n) sum_k z_k^B (z_k^A . w - y_k).

- One noise, A = B: since E[z z^T] = x x^T + diag(var z), the expectation is (2/n) X^T (X w - y) + 2 r w, where r_i is
  the mean over samples of var z_i. For dropout, r_i = p / (1 - p) mean_k x_ki^2: a ridge penalty, scaled by the data.
- Two independent noises: the expectations multiply, E[z^B] E[z^A . w - y], and what is left is least squares.
- Noise in the residual only, none in the input ("off"): the same product, the same expectation.
- The loss inside the segment: what the recomputation saves has one noise, B = B, in the input and in the residual. That
  the loss was reported with A does not matter: the gradient of the loss by itself is 1. The penalty is back.

Source of the penalty: N. Srivastava et al., "Dropout: A Simple Way to Prevent Neural Networks from Overfitting", JMLR
15, 2014, section 9.1; S. Wager, S. Wang, P. Liang, "Dropout Training as Adaptive Regularization", NeurIPS 2013.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from recompute_lab.specimens.noise import Additive, Dropout, Gaussian

Noise = Dropout | Gaussian | Additive


@dataclass(frozen=True)
class Problem:
    """Inputs x [n, d], targets y [n] and the weights w [d] at which gradients are taken; float64."""

    x: torch.Tensor
    y: torch.Tensor
    w: torch.Tensor


def problem(n: int = 8, d: int = 5, seed: int = 0) -> Problem:
    """Normal inputs of different scales, targets of a linear rule with noise, and weights beside the rule's."""
    generator = torch.Generator().manual_seed(seed)
    normal = [torch.randn(size, generator=generator, dtype=torch.float64) for size in ((n, d), (d,), (n,), (d,))]
    x = normal[0] * torch.linspace(0.5, 1.5, d, dtype=torch.float64)
    return Problem(x, x @ normal[1] + 0.3 * normal[2], normal[1] + 0.5 * normal[3])


def penalty(case: Problem, noise: Noise) -> torch.Tensor:
    """The factors r [d] of the ridge penalty sum_i r_i w_i^2 that the noise amounts to, float64."""
    return noise.variance(case.x).mean(0)


def expected_gradient(case: Problem, noise: Noise, penalised: bool) -> torch.Tensor:
    """The expectation of the gradient, [d]: with the penalty (one noise), or without (two, or none in the input)."""
    residual = case.x @ case.w - case.y
    least_squares = 2 * case.x.T @ residual / len(case.y)
    return least_squares + 2 * penalty(case, noise) * case.w if penalised else least_squares


def resting_weights(case: Problem, noise: Noise, penalised: bool) -> torch.Tensor:
    """The weights [d] at which the expected gradient is zero: where small steps along it end."""
    normal_matrix = case.x.T @ case.x / len(case.y)
    if penalised:
        normal_matrix = normal_matrix + penalty(case, noise).diag()
    return torch.linalg.solve(normal_matrix, case.x.T @ case.y / len(case.y))


def gradients(
    case: Problem, noise: Noise, run: Callable, draws: int, loss_inside: bool = False, seed: int = 0
) -> torch.Tensor:
    """The gradients of `draws` independent steps at the same weights, [draws, d], float64.

    All steps are taken at once: each has its own copy of the weights and its own noise. `run(segment, w)` runs the
    segment, plainly or checkpointed; the loss is computed outside it, or at its end. torch's generator is seeded first,
    and afterwards stands where it stood.
    """
    weights = case.w.expand(draws, -1).clone().requires_grad_()

    def unit(w: torch.Tensor) -> torch.Tensor:
        z = noise.noisy(case.x.expand(draws, -1, -1))
        return (z @ w.unsqueeze(-1)).squeeze(-1)

    def loss(prediction: torch.Tensor) -> torch.Tensor:
        return (prediction - case.y).square().mean(-1)

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        each = run(lambda w: loss(unit(w)), weights) if loss_inside else loss(run(unit, weights))
        each.sum().backward()
    return weights.grad
