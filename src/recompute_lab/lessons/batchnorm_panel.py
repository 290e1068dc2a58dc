"""Lesson 05's panel of running statistics, and the one case that a figure shows."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from recompute_lab.instruments.state import same_bits
from recompute_lab.lessons.batchnorm import RECIPES, Deviation
from recompute_lab.lessons.batchnorm_repairs import run_segment
from recompute_lab.specimens.batchnorm_training import BatchNormRun, Settings, Step
from recompute_lab.views.batchnorm_panel import IMPLEMENTATIONS, REPAIRS, BatchNormPanel, Case, Course

CHANNEL = 3  # of the second BatchNorm
EVALUATIONS = 10
_CALLED = {REPAIRS[3]: "written to copies", REPAIRS[4]: "boundary moved"}  # by `run_segment`


def measure(
    momentum: float | None = 0.1,
    steps: int = 40,
    drift: float = 1,
    implementation: str = "non-reentrant",
    repair: str = "none",
) -> Case:
    """Three runs from the same weights over the same batches: plain, checkpointed, and checkpointed with a repair.

    With "none" there are two. Raises ValueError, naming the choices, for an unknown implementation or repair, and for a
    recipe of a momentum where the momentum is None.
    """
    if implementation not in IMPLEMENTATIONS or repair not in REPAIRS:
        raise ValueError(
            f"no such run: {implementation}, {repair}. Implementations are: {', '.join(IMPLEMENTATIONS)}; repairs: "
            f"{', '.join(REPAIRS)}"
        )
    if repair in RECIPES and momentum is None:
        raise ValueError(
            f"{repair} needs a number: with momentum None there is no m. Choose a number, or another repair."
        )
    settings = Settings(steps, momentum=momentum, drift=drift)
    runs = {"plain": _run(settings, "plain"), "checkpointed": _run(settings, implementation)}
    if repair in RECIPES:
        runs["repaired"] = _run(replace(settings, momentum=RECIPES[repair](momentum)), implementation)
    elif repair != "none":
        runs["repaired"] = _run(settings, implementation, _CALLED[repair])
    plain = runs["plain"]
    statistics = {name: [step.statistics for step in run.history] for name, run in runs.items()}
    return Case(
        steps,
        repair,
        {name: _course(run) for name, run in runs.items()},
        {name: Deviation.of(statistics[name], statistics["plain"]) for name in runs if name != "plain"},
        all(_taken(run.history) == _taken(plain.history) for run in runs.values()),
        _same(runs.get("repaired", runs["checkpointed"]).history, plain.history),
    )


@lru_cache(maxsize=64)
def _run(settings: Settings, way: str, repair: str = "none") -> BatchNormRun:
    """A run that was really taken; the same one where the same is asked for again."""
    probes = [settings.steps * i // EVALUATIONS for i in range(1, EVALUATIONS + 1)]
    return BatchNormRun(settings, run_segment(repair, way)).train(probes)


def _course(run: BatchNormRun) -> Course:
    kept = [each["norm2"] for each in (run.start, *(step.statistics for step in run.history))]
    return Course(
        [float(each.mean[CHANNEL]) for each in kept],
        [float(each.variance[CHANNEL]) for each in kept],
        {evaluation.step: evaluation.error for evaluation in run.evaluations},
    )


def _taken(history: list[Step]) -> list[tuple[float, str]]:
    return [(step.loss, step.gradients) for step in history]


def _same(history: list[Step], other: list[Step]) -> bool:
    """Means and variances, in every bit."""
    pairs = [(a.statistics[n], b.statistics[n]) for a, b in zip(history, other, strict=True) for n in a.statistics]
    return all(same_bits(a.mean, b.mean) and same_bits(a.variance, b.variance) for a, b in pairs)


def panel() -> BatchNormPanel:
    """The panel, without a repair."""
    return BatchNormPanel(measure)
