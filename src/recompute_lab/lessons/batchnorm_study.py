"""The evaluation study of lesson 05: how it is run, where its numbers lie, and how they are read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from itertools import product
from pathlib import Path

from recompute_lab.instruments.checkpointing import NON_REENTRANT, PLAIN
from recompute_lab.instruments.estimates import Interval, paired_difference
from recompute_lab.lessons import stored_study
from recompute_lab.lessons.stored_study import StoredStudy, rounded
from recompute_lab.specimens.batchnorm_training import BatchNormRun, Settings

SEEDS = tuple(range(16))
MOMENTA = (0.01, 0.1, 0.5, None)
DRIFTS = (0.0, 1.0, 4.0)
BATCHES = (32, 4)
DECAYS = (False, True)
PROBES = (5, 10, 20, 40, 70, 100)  # steps after which a run is evaluated
SETTINGS = {
    f"batch {batch}, {'rate decays' if decay else 'constant rate'}": {"batch": batch, "decay": decay}
    for batch, decay in product(BATCHES, DECAYS)
}
WAYS = {"plain": PLAIN, "checkpointed": NON_REENTRANT}  # reentrant gives the same bits as non-reentrant
QUANTITIES = ("error", "loss")
STORED = stored_study.DATA / "batchnorm.json"

Condition = tuple[float | None, float, int, bool]  # momentum, drift, batch, decay
Curves = dict[str, dict[str, list[list[float]]]]  # per way, per quantity, [probes][seeds]


def conditions() -> Iterator[Condition]:
    """Every momentum, drift, batch and decay of the learning rate, in combination."""
    yield from product(MOMENTA, DRIFTS, BATCHES, DECAYS)


def key(momentum: float | None, drift: float, batch: int, decay: bool) -> str:
    rate = "decays" if decay else "constant"
    return f"momentum={momentum}, drift={drift:g}, batch={batch}, learning rate {rate}"


def measure(condition: Condition, seeds: tuple[int, ...] = SEEDS, probes: tuple[int, ...] = PROBES) -> Curves:
    """Train plainly and checkpointed, once per seed, up to the last of `probes`; evaluate after each.

    Raises RuntimeError where the gradients of a step are not the plain run's: what is compared are statistics alone.
    """
    momentum, drift, batch, decay = condition
    curves: Curves = {way: {quantity: [[] for _ in probes] for quantity in QUANTITIES} for way in WAYS}
    for seed in seeds:
        settings = Settings(max(PROBES), batch, momentum, drift, decay=decay, seed=seed)
        runs = {way: BatchNormRun(settings, strategy).train(probes, max(probes)) for way, strategy in WAYS.items()}
        taken = {way: [(step.loss, step.gradients) for step in run.history] for way, run in runs.items()}
        if taken["plain"] != taken["checkpointed"]:
            raise RuntimeError(f"the runs of seed {seed} part in their losses or gradients: {key(*condition)}")
        for way, run in runs.items():
            for probe, evaluation in enumerate(run.evaluations):
                for quantity in QUANTITIES:
                    number = rounded(getattr(evaluation, quantity))
                    curves[way][quantity][probe].append(number)
    return curves


def header() -> dict:
    """What the numbers depend on."""
    settings = asdict(Settings(max(PROBES)))
    for varied in ("momentum", "drift", "batch", "decay", "seed"):
        del settings[varied]
    return stored_study.header(settings, SEEDS, PROBES, QUANTITIES)


class Study(StoredStudy):
    """The stored numbers. `curves` maps a `key` to evaluations: per way, per quantity, [probes][seeds]."""

    def curve(
        self, way: str, quantity: str = "error", momentum: float | None = 0.1, drift: float = 0.0, batch: int = 32,
        decay: bool = False,
    ) -> list[list[float]]:  # fmt: skip
        """[probes][seeds]. Raises ValueError, naming what there is, for a run that is not in the study."""
        return self.run(key(momentum, drift, batch, decay))[way][quantity]

    def difference(self, quantity: str = "error", probe: int = -1, **condition) -> Interval:
        """Checkpointed minus plain, paired by seed: the mean and its 95% t interval; `probe` counts in `probes`."""
        first, second = (self.curve(way, quantity, **condition)[probe] for way in ("checkpointed", "plain"))
        return paired_difference(first, second)

    def differences(self, momentum: float | None, drift: float = 0.0) -> dict[str, list[Interval]]:
        """The difference in errors at each of `probes`, for each of SETTINGS."""
        return {
            name: [self.difference(probe=p, momentum=momentum, drift=drift, **setting) for p in range(len(self.probes))]
            for name, setting in SETTINGS.items()
        }

    def errors(self, momentum: float | None, setting: str, drift: float = 0.0) -> dict[str, list[list[float]]]:
        """Per way, the errors [probes][seeds], for one of SETTINGS."""
        return {way: self.curve(way, "error", momentum, drift, **SETTINGS[setting]) for way in WAYS}


def load(path: Path = STORED) -> Study:
    """The stored study. Raises FileNotFoundError, with the command that makes it, where it is missing or unfinished."""
    return Study.read(path, "evaluation study", (key(*each) for each in conditions()))
