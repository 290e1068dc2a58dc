"""Each figure function of the views, called once as a lesson calls it: what tests of all figures look at."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from types import SimpleNamespace

import torch
from matplotlib.figure import Figure

from recompute_lab.instruments.estimates import Estimate, Interval
from recompute_lab.instruments.ledger import align, record
from recompute_lab.instruments.margins import Margins
from recompute_lab.instruments.memory import Footprint
from recompute_lab.lessons import batchnorm as batchnorm_lesson
from recompute_lab.lessons import batchnorm_panel, field_guide, flip_panel, loud_or_silent, mask_panel, side_effects
from recompute_lab.lessons.spacing import intervals
from recompute_lab.lessons.threshold import measure
from recompute_lab.specimens.training import Step
from recompute_lab.views import audit, batchnorm, divergence, dropout, evaluations, masks, memory, odds, outcomes
from recompute_lab.views import batchnorm_panel as courses
from recompute_lab.views import field_guide as guide
from recompute_lab.views import side_effects as tables
from recompute_lab.views.replays import replays
from recompute_lab.views.slots import slots
from recompute_lab.views.spacing import run_of_intervals
from recompute_lab.views.strip import strip
from recompute_lab.views.tally import tally
from recompute_lab.views.threshold import regime
from recompute_lab.views.training import counters
from recompute_lab.views.warnings import lead_times

FLIPS = (("scale of full shape", "false, then true"), ("gate", "true, then false"))


def _interval(mean: float, width: float = 0.02) -> Interval:
    return Interval(mean, mean - width, mean + width)


def _seeds(start: float, end: float, probes: int = 4) -> list[list[float]]:
    return [[start + (end - start) * i / (probes - 1) + 0.01 * seed for seed in range(4)] for i in range(probes)]


def _strip() -> Figure:
    def segment(x, times):
        for _ in range(times):
            x = (x * torch.ones(3)).tanh()
        return x.exp()

    x = torch.ones(3, requires_grad=True)
    return strip(align(record(segment, x, 7), record(segment, x, 6)))


def _counters() -> Figure:
    steps = [Step(i, max(0, i - 25), max(0, i - 12)) for i in range(30)]
    return counters({"staged": (steps, True), "repaired": (steps, False)})


def _margins(columns: int = 20) -> Margins:
    return Margins(torch.arange(40 * columns).reshape(40, columns) * 7919 % 37 - 18)


def _curves() -> Figure:
    margins = _margins(1)
    return odds.three_curves({"1 position": margins.sweep(range(-20, 21))}, {"1 position": 1})


def _memory() -> Figure:
    held = {k: Footprint(k * 100, round((k + 36 / k + 2.25) * 100), 0) for k in (1, 2, 6, 12, 36)}
    plain, times = Footprint(3600, 3825, 0), {k: 1.3 + k / 100 for k in held}
    return memory.segments(plain, held, 100, lambda k: k + 36 / k + 2.25, times)


def _per_layer() -> Figure:
    cells = {f"{flip.branch}, {s.name}": result for flip, s, result in _matrix() if result.raised is None}
    return divergence.per_layer(dict(list(cells.items())[:: len(cells) // 5][:5]))


def _over_steps() -> Figure:
    names = ("scale per vector", "scale of full shape", "gate", "route", "early exit")
    return divergence.over_steps({name: [10.0 ** (i - 6)] * 40 for i, name in enumerate(names)})


@cache
def _matrix() -> list:
    return list(loud_or_silent.matrix())


def _expected() -> Figure:
    ridge, plain = torch.tensor([1.0, -0.5, 0.3]), torch.tensor([0.4, -0.2, 0.1])
    rows = {
        name: SimpleNamespace(estimate=Estimate.of(at + 0.05 * torch.randn(100, 3)), formula=at)
        for name, at in (("replayed", ridge), ("lost", plain), ("off", plain), ("lost, loss inside", ridge))
    }
    return dropout.expected_gradients(rows, ridge, plain)


def _by_layers() -> Figure:
    shares = {p: {k: [p * k**0.4 * (1 + seed / 9) for seed in (0, 1)] for k in (1, 2, 4, 8, 16)} for p in (0.05, 0.1)}
    return dropout.divergence_by_layers(shares | {p: {k: [2 * e for e in row] for k, row in shares[0.1].items()}
                                                  for p in (0.3, 0.5)})  # fmt: skip


def _training() -> Figure:
    ways = {"replayed": 0.4, "baseline": 0.4, "lost": 0.6, "off": 0.5, "lost, loss inside": 0.45, "no dropout": 0.7}
    curves = {"p = 0.1": {"2 layers": {way: _seeds(2.0, end) for way, end in ways.items()}}}
    return dropout.training_curves([10, 20, 40, 80], curves, "held-out loss")


def _paired() -> Figure:
    rows = {"p = 0.1": dict(zip(("lost", "off", "lost, loss inside"), map(_interval, (0.1, 0.05, 0.01)), strict=True))}
    return dropout.paired_differences({"held-out loss": rows, "accuracy": rows})


def _trajectories() -> Figure:
    runs = {name: [i * scale for i in range(21)] for name, scale in
            (("plain", 1.0), ("non-reentrant", 2.0), ("reentrant", 2.0), ("repaired", 1.0))}  # fmt: skip
    return batchnorm.trajectories({"running mean": runs | {"batch": [1.0] * 20}, "running variance": runs})


def _evaluations() -> Figure:
    panels = {"m = 0.1": {"batch 32": {"plain": _seeds(0.9, 0.2), "checkpointed": _seeds(0.9, 0.1)}}}
    return batchnorm.evaluations([5, 10, 20, 40], panels, "errors")


def _differences() -> Figure:
    settings = ("batch 32, constant", "batch 32, decays", "batch 4, constant", "batch 4, decays")
    panels = {"m = 0.1": {name: [_interval(0.02 * i - 0.03)] * 4 for i, name in enumerate(settings)}}
    return batchnorm.differences([5, 10, 20, 40], panels)


def _deviations() -> Figure:
    row = batchnorm_lesson.Deviation
    return batchnorm.deviations({"m": row(0.2, 0.1, 40, 20), "1 - sqrt(1 - m)": row(0.0, 1e-7, 40, 20)})


def _updates() -> Figure:
    return batchnorm.updates(
        {"reentrant": {0: 1, 1: 2, 2: 3}, "a layer behind": {0: 1, 1: 2, 2: 3}, "nothing behind": {0: 1, 1: 2, 2: 2}}
    )


def _symptoms() -> Figure:
    family = side_effects.FAMILY[:4]
    return tables.symptoms(side_effects.symptoms(family), {one.name: side_effects.verdict(one) for one in family})


def _placement() -> Figure:
    table = {
        "at the beginning": {"reentrant": 2, "non-reentrant": 2},
        "at the end": {"reentrant": 2, "non-reentrant": 1},
    }
    return tables.placement(table, ["linear", "tanh", "linear"], {"at the beginning": 0, "at the end": 3})


def _sightings() -> Figure:
    rows = [audit.Row("a guard", "caps.py:26", ((True, "inside"), (False, "not called")))]
    return audit.sightings(rows * 2, ("audit", "run"))


def _narrowing() -> Figure:
    return audit.narrowing([audit.Stage("found", 16), audit.Stage("inside?", 9, "7 outside"), audit.Stage("armed?", 5)])


def _guide() -> Figure:
    return guide.outcomes(field_guide.rows(), field_guide.ROOT_CAUSES, ("reentrant", "non-reentrant"))


def _spacing() -> Figure:
    runs = {f"always {grade}": [grade] * 6 for grade in ("Again", "Hard", "Good", "Easy")}
    return run_of_intervals({name: intervals(grades) for name, grades in runs.items()})


def _tally() -> Figure:
    return tally({"as it is": {"fine": 23, "count": 5, "metadata": 2, "silent": 4}, "deterministic": {"fine": 34}})


FIGURES: dict[str, Callable[[], Figure]] = {
    "audit.narrowing": _narrowing,
    "audit.sightings": _sightings,
    "batchnorm.deviations": _deviations,
    "batchnorm.differences": _differences,
    "batchnorm.evaluations": _evaluations,
    "batchnorm.trajectories": _trajectories,
    "batchnorm.updates": _updates,
    "batchnorm_panel.courses": lambda: courses.courses(
        batchnorm_panel.measure(0.1, 20, 1, "non-reentrant", "1 - sqrt(1 - m)")
    ),
    "divergence.over_steps": _over_steps,
    "divergence.per_layer": _per_layer,
    "dropout.divergence_by_layers": _by_layers,
    "dropout.expected_gradients": _expected,
    "dropout.paired_differences": _paired,
    "dropout.training_curves": _training,
    "evaluations.around": lambda: evaluations.around({"filter": [0, 1, 1, -3, 9, -10, 40], "level": [0, 11, -12]}),
    "evaluations.repetitions": lambda: evaluations.repetitions({"accuracy": ([0.93, 0.94] * 5, [0.935] * 10)}),
    "field_guide.chart": lambda: guide.chart(field_guide.STEPS, field_guide.ROOT_CAUSES, field_guide.SEEN),
    "field_guide.outcomes": _guide,
    "masks.masks_and_divergence": lambda: masks.masks_and_divergence(mask_panel.measure("a torch.Generator")),
    "memory.segments": _memory,
    "odds.lifetimes": lambda: odds.lifetimes({1: 5, 2: 9, 8: 20}, 20, lambda count: 1 - 0.75**count),
    "odds.three_curves": _curves,
    "outcomes.loudness": lambda: outcomes.loudness(loud_or_silent.loudness(_matrix())),
    "outcomes.matrix": lambda: outcomes.matrix(_matrix()),
    "replays.replays": lambda: replays({"NumPy": {"own": True, "torch": False}, "torch": {"own": True, "torch": True}}),
    "side_effects.placement": _placement,
    "side_effects.symptoms": _symptoms,
    "slots.slots": lambda: slots(flip_panel.measure(*FLIPS[0])),
    "spacing.run_of_intervals": _spacing,
    "strip.strip": _strip,
    "tally.tally": _tally,
    "threshold.regime": lambda: regime(measure(16, 1000, "staged"), 16),
    "training.counters": _counters,
    "warnings.lead_times": lambda: lead_times(
        {"loss": [None, None], "near": [3, None], "capped": [0, 0]}, {"loss": 0, "near": 1, "capped": 0}, 4
    ),  # fmt: skip
}


@cache
def figure(name: str) -> Figure:
    """The figure, laid out."""
    torch.manual_seed(0)
    return FIGURES[name]()
