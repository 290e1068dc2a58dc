"""Lesson 04, dropout: the ways to treat a mask in the recomputation, and what each does to gradients."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace

import torch

from recompute_lab.instruments.checkpointing import NON_REENTRANT, PLAIN, Strategy
from recompute_lab.instruments.estimates import Estimate
from recompute_lab.instruments.gradients import divergence
from recompute_lab.specimens.digits import digit_sequences
from recompute_lab.specimens.dropout_net import DropoutNet
from recompute_lab.specimens.dropout_training import DropoutRun
from recompute_lab.specimens.layer_drop import LayerDropNet, layers_run
from recompute_lab.specimens.linear_dropout import Noise, Problem, expected_gradient, gradients
from recompute_lab.specimens.noise import noise_off

LOST = Strategy("non-reentrant, preserve_rng_state=False", use_reentrant=False, preserve_rng_state=False)
OFF = Strategy("non-reentrant, noise off in recomputation", False, context_fn=lambda: (nullcontext(), noise_off()))


@dataclass(frozen=True)
class Treatment:
    """What becomes of the mask in the recomputation: how a segment is run, and what the segment is."""

    run: Strategy
    segment: str = "block"  # one of `dropout_net.SEGMENTS`


TREATMENTS = {
    "baseline": Treatment(PLAIN),
    "replayed": Treatment(NON_REENTRANT),
    "lost": Treatment(LOST),
    "off": Treatment(OFF),
    "lost, loss inside": Treatment(LOST, "loss"),
}
PENALISED = {"baseline", "replayed", "lost, loss inside"}  # where the linear unit's average gradient has the penalty


# The linear unit


@dataclass(frozen=True)
class Comparison:
    """A treatment's average gradient in the linear unit: simulated, and by the formula, [d]."""

    estimate: Estimate
    formula: torch.Tensor

    @property
    def errors(self) -> float:
        """How many standard errors the worst component is from its formula."""
        return float(self.estimate.errors_from(self.formula).abs().max())


def linear_gradients(
    case: Problem, noise: Noise, draws: int = 20_000, treatments: Iterable[str] = TREATMENTS
) -> dict[str, torch.Tensor]:
    """Per treatment, the gradients of independent steps, [draws, d]; a row has one forward noise under all of them."""
    ways = {name: TREATMENTS[name] for name in treatments}
    return {name: gradients(case, noise, way.run, draws, way.segment == "loss") for name, way in ways.items()}


def linear_comparisons(case: Problem, noise: Noise, draws: dict[str, torch.Tensor]) -> dict[str, Comparison]:
    """The draws of `linear_gradients` against the formulas."""
    return {
        name: Comparison(Estimate.of(each), expected_gradient(case, noise, name in PENALISED))
        for name, each in draws.items()
    }


# The network


def divergences(
    p: float,
    stochastic: int,
    treatment: str = "lost",
    segment: str = "block",
    *,
    depth: int = 16,
    seeds: Sequence[int] = range(8),
    images: int = 20,
) -> list[float]:
    """Per seed, the relative error |g - b| / |b| of the gradient of all weights, in one step of a network of that seed.

    b is the gradient without checkpointing, with the same masks in the forward. The weights are the initial ones.
    """
    net = DropoutNet(seeds, p, depth, stochastic)
    patches, labels = digit_sequences()
    batch = patches[:images].flatten(1).expand(len(seeds), -1, -1), labels[:images].expand(len(seeds), -1)
    plain = _gradients(net, batch, TREATMENTS["baseline"])
    other = _gradients(net, batch, replace(TREATMENTS[treatment], segment=segment))
    return ((other - plain).norm(dim=1) / plain.norm(dim=1)).tolist()


def network_gradients(
    p: float = 0.3,
    depth: int = 2,
    trained: int = 100,
    draws: int = 128,
    seed: int = 0,
    treatments: Iterable[str] = TREATMENTS,
    segment: str = "block",
) -> dict[str, torch.Tensor]:
    """Per treatment, the gradients of independent draws of the masks, at one network's weights and batch: [draws, P].

    The network has been trained for `trained` steps without checkpointing. A row has the same forward masks under all
    treatments. `segment` is "block" or "trunk"; a treatment with the loss inside has its own.
    """
    run = DropoutRun([seed], p, depth)
    for _ in range(trained):
        run.step()
    net = run.net.replicated(0, draws)
    batch = tuple(part.expand(draws, *part.shape[1:]) for part in run.batch())
    ways = {name: TREATMENTS[name] for name in treatments}
    return {
        name: _gradients(net, batch, way if way.segment == "loss" else replace(way, segment=segment))
        for name, way in ways.items()
    }


def _gradients(net: DropoutNet, batch: tuple[torch.Tensor, torch.Tensor], how: Treatment) -> torch.Tensor:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return net.gradients(*batch, run=how.run, segment=how.segment)


# Layer drop


@dataclass(frozen=True)
class EachLayer(Strategy):
    """A strategy that checkpoints each layer of a `LayerDropNet` by itself."""

    def __call__(self, segment: Callable, *args, **kwargs):
        return segment(*args, run=super().__call__, **kwargs)


def layer_drop_outcomes(
    strategy: Strategy = LOST, p: float = 0.25, depth: int = 8, head: bool = False, seeds: Iterable[int] = range(200)
) -> Counter[tuple[str, str]]:
    """How often a lost draw of the layers has which outcome, as in `Divergence.outcome`, one step per seed.

    Keys are (the recomputation runs "the same", "others, as many", "fewer" or "more" layers, outcome). With
    `EachLayer`, where recomputations come one by one and only of layers that ran: ("layer by layer", outcome).
    """
    net = LayerDropNet(p, depth, head=head)
    x = torch.randn(4, 16, generator=torch.Generator().manual_seed(0)).requires_grad_()
    outcomes: Counter[tuple[str, str]] = Counter()
    for seed in seeds:
        first, second = layers_run(p, depth, seed)
        more = sum(second) - sum(first)
        relation = "the same" if first == second else "fewer" if more < 0 else "more" if more else "others, as many"
        if isinstance(strategy, EachLayer):
            relation = "layer by layer"
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            outcomes[relation, divergence(net, x, strategy=strategy).outcome] += 1
    return outcomes
