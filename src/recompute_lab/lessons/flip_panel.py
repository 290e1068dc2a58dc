"""Lesson 03's panel, and the one case that a figure after it shows."""

from __future__ import annotations

from recompute_lab.instruments.checkpointing import NON_REENTRANT, REENTRANT, Strategy, passes
from recompute_lab.instruments.gradients import divergence
from recompute_lab.lessons.loud_or_silent import BRANCHES, DIRECTIONS, flip
from recompute_lab.views.flip_panel import FlipPanel
from recompute_lab.views.slots import Case


def measure(branch: str, direction: str, strategy: Strategy = NON_REENTRANT) -> Case:
    """Both passes of a staged flip under `strategy`, and its gradients against the plain run's.

    Raises ValueError, naming the choices, for an unknown branch or direction.
    """
    flipped = flip(branch, direction)
    segment, x = flipped.segment, flipped.x
    whole = passes(segment, x, strategy=REENTRANT).recomputation  # that implementation never stops its second pass
    both = passes(segment, x, strategy=strategy)
    return Case(branch, direction, strategy, both, whole.rows, divergence(segment, x, strategy=strategy))


def panel() -> FlipPanel:
    """The panel, at the flip that fills tanh's slot with a scale of the same shape."""
    return FlipPanel(measure, BRANCHES, DIRECTIONS, ("scale of full shape", "false, then true"))
