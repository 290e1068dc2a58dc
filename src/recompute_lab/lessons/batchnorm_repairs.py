"""Lesson 05: BatchNorm under each repair, and under what is often tried in place of one."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager, nullcontext
from functools import partial

import torch
from torch import nn
from torch.nn import functional as F

from recompute_lab.instruments.checkpointing import Strategy
from recompute_lab.instruments.gradients import Divergence, divergence
from recompute_lab.lessons.batchnorm import WAYS, Deviation, deviation
from recompute_lab.lessons.side_effects import rows, with_context
from recompute_lab.repairs.boundary import checkpointed_between
from recompute_lab.repairs.idempotent import Idempotent
from recompute_lab.repairs.replay import state_replayed
from recompute_lab.repairs.suppress import buffers_spared
from recompute_lab.specimens.batchnorm_training import BatchNormRun, Settings
from recompute_lab.specimens.running_state import frozen_in_recomputation

SETTINGS = Settings(20, drift=1.0)
REPAIRS = ("none", "made idempotent", "written to copies", "state replayed", "boundary moved")


def run_segment(repair: str, way: str, depth: int = 1) -> Callable:
    """`run(segment, x)`: the segment checkpointed by `way` under a repair, inside `depth` nested segments.

    With "boundary moved" it is the stretches between the BatchNorms that are. "made idempotent" is nothing that the
    call of checkpoint can do: see `repaired`. Raises ValueError, naming the choices, for an unknown repair or way, and
    for a depth below 1.
    """
    if repair not in REPAIRS or way not in WAYS or depth < 1:
        raise ValueError(
            f"no such run: {repair}, {way}, {depth} deep. Repairs are: {', '.join(REPAIRS)}; ways: {', '.join(WAYS)}; "
            "a depth is 1 at least"
        )
    contexts = {"written to copies": buffers_spared, "state replayed": state_replayed}

    def run(segment: nn.Module, x: torch.Tensor) -> torch.Tensor:
        if repair == "boundary moved":
            return checkpointed_between(segment, x, run=lambda stretch, x: _nested(stretch, x, WAYS[way], depth))
        context = contexts[repair](segment) if repair in contexts else None
        return _nested(segment, x, with_context(WAYS[way], context), depth)

    return run


def repaired(repair: str, way: str, depth: int = 1, settings: Settings = SETTINGS) -> BatchNormRun:
    """A run, trained, under a repair: see `run_segment`."""
    run = BatchNormRun(settings, run_segment(repair, way, depth))
    if repair == "made idempotent":
        once = Idempotent(run.net.segment)
        run.optimizer.register_step_post_hook(lambda *_: once.commit())
    return run.train()


def _nested(segment: Callable, x: torch.Tensor, way: Strategy, depth: int) -> torch.Tensor:
    for _ in range(depth - 1):
        segment = partial(way, segment)
    return way(segment, x)


def repairs(
    ways: tuple[tuple[str, int], ...], settings: Settings = SETTINGS
) -> dict[str, dict[tuple[str, int], Deviation]]:
    """For each repair, for each of `ways` (an implementation and a depth): the deviation from the plain run."""
    plain = BatchNormRun(settings).train()
    return {r: {way: deviation(repaired(r, *way, settings), plain) for way in ways} for r in REPAIRS}


# What is tried in place of a repair, on a BatchNorm in a segment of layers


def layers(norm: type[nn.BatchNorm1d] = nn.BatchNorm1d) -> nn.Sequential:
    """Linear, BatchNorm, tanh, linear: [N, 16] -> [N, 16], always with the same weights."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(16, 16, bias=False), norm(16), nn.Tanh(), nn.Linear(16, 16))


def switched_off(module: nn.Module) -> Callable:
    """A `context_fn` in whose recomputation no BatchNorm of `module` has `track_running_stats`."""

    @contextmanager
    def recomputation():
        norms = [part for part in module.modules() if isinstance(part, nn.modules.batchnorm._BatchNorm)]
        for norm in norms:
            norm.track_running_stats = False
        try:
            yield
        finally:
            for norm in norms:
                norm.track_running_stats = True

    return lambda: (nullcontext(), recomputation())


class AsksGradMode(nn.BatchNorm1d):
    """Writes its statistics only where gradients are on."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if torch.is_grad_enabled():
            return super().forward(x)
        return F.batch_norm(x, None, None, self.weight, self.bias, training=True, eps=self.eps)


ATTEMPTS = {
    "track_running_stats off in the recomputation": (nn.BatchNorm1d, switched_off),
    "eval() in the recomputation": (nn.BatchNorm1d, frozen_in_recomputation),
    "if torch.is_grad_enabled(): write": (AsksGradMode, lambda module: None),
}


def attempts() -> dict[str, dict[str, Divergence]]:
    """One step of each of ATTEMPTS under each implementation, against the plain step."""
    found: dict[str, dict[str, Divergence]] = {}
    for name, (norm, context) in ATTEMPTS.items():
        module = layers(norm)
        ways = {way: with_context(strategy, context(module)) for way, strategy in WAYS.items() if way != "plain"}
        found[name] = {way: divergence(module, rows(), strategy=strategy) for way, strategy in ways.items()}
    return found
