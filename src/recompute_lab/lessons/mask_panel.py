"""Lesson 04's panel, and the one case that a figure shows."""

from __future__ import annotations

from recompute_lab.instruments.checkpointing import NON_REENTRANT, REENTRANT, Strategy
from recompute_lab.instruments.gradients import divergence
from recompute_lab.instruments.own_checkpoint import ALL_REPLAYED, NAIVE, TORCH_REPLAYED, OwnCheckpoint
from recompute_lab.instruments.streams import kept, process_streams, seed_everything
from recompute_lab.lessons.dropout import LOST
from recompute_lab.lessons.streams import REENTRANT_LOST, masks, own_generators, rows
from recompute_lab.specimens.draws import DRAWS, Draw, MaskedLayers
from recompute_lab.views.mask_panel import IMPLEMENTATIONS, STAGES, MaskPanel
from recompute_lab.views.masks import Case

_OWN = IMPLEMENTATIONS[2]
_WAYS = {
    ("reentrant", True): REENTRANT,
    ("reentrant", False): REENTRANT_LOST,
    ("non-reentrant", True): NON_REENTRANT,
    ("non-reentrant", False): LOST,
    **{(_OWN, stage): way for stage, way in zip(STAGES, (NAIVE, TORCH_REPLAYED, ALL_REPLAYED), strict=False)},
}
SETTINGS = [*_WAYS, (_OWN, STAGES[3])]


def measure(
    stream: str, implementation: str = "non-reentrant", setting: bool | str = True, p: float = 0.5, layers: int = 4
) -> Case:
    """The first layer's masks in both passes, and the gradients against the plain run's, from one and the same seed.

    `setting` is torch's `preserve_rng_state`, or for the course's own checkpoint the name of its stage. Raises
    ValueError, naming the choices, for an unknown stream or way to checkpoint. The random streams stay where they are.
    """
    if stream not in DRAWS:
        raise ValueError(f"{stream!r} is none of: {', '.join(DRAWS)}")
    draw = DRAWS[stream](p)
    way = _way(implementation, setting, draw)
    forward, recomputation = masks(draw, way, layers)
    with kept(process_streams()):
        seed_everything(0)  # as `masks` does: so the masks are those that the gradients come from
        result = divergence(MaskedLayers(draw, layers), rows(), strategy=way)
    return Case(stream, p, forward, recomputation, result)


def _way(implementation: str, setting: bool | str, draw: Draw) -> Strategy:
    if (implementation, setting) not in SETTINGS:
        choices = "; ".join(f"{name}, {value}" for name, value in SETTINGS)
        raise ValueError(f"no way to checkpoint: {implementation}, {setting}. There are: {choices}")
    if setting == STAGES[3]:
        return OwnCheckpoint("own, told of the generator", generators=own_generators(draw))
    return _WAYS[implementation, setting]


def panel() -> MaskPanel:
    """The panel, at torch's defaults and a generator of the module's own: replayed by nobody, noticed by nobody."""
    return MaskPanel(measure, DRAWS, "a torch.Generator")
