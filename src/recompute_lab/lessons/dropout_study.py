"""The training study of lesson 04: how it is run, where its numbers lie, and how they are read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from itertools import product
from pathlib import Path

from recompute_lab.instruments.estimates import Interval, paired_difference
from recompute_lab.lessons import stored_study
from recompute_lab.lessons.dropout import TREATMENTS
from recompute_lab.lessons.stored_study import StoredStudy, rounded
from recompute_lab.specimens.dropout_training import DropoutRun, Settings

SEEDS = tuple(range(16))
PS, DEPTHS = (0.1, 0.3, 0.5), (2, 8)
PROBES = (10, 20, 40, 70, 100, 150, 200, 250, 300, 400)  # steps after which the replicas are measured
QUANTITIES = ("train_loss", "test_loss", "train_accuracy", "test_accuracy", "logit_scale", "reported_loss")
STORED = stored_study.DATA / "dropout.json"

Curves = dict[str, list[list[float]]]  # per quantity, [probes][seeds]


def conditions() -> Iterator[tuple[str, float, int, str]]:
    """The key, p, depth and treatment of every run of the study; for each depth, one run without dropout first."""
    for depth in DEPTHS:
        for p, treatment in [(0.0, "baseline"), *product(PS, TREATMENTS)]:
            yield key(p, depth, treatment), p, depth, treatment


def key(p: float, depth: int, treatment: str) -> str:
    return f"p={p:g}, {depth} layers, {treatment}"


def measure(p: float, depth: int, treatment: str, probes: tuple[int, ...] = PROBES) -> Curves:
    """Train all seeds under a treatment, up to the last of `probes`."""
    how = TREATMENTS[treatment]
    measured = DropoutRun(SEEDS, p, depth, how.run, how.segment).train(probes)
    return {q: [[rounded(getattr(s, q)) for s in probe] for probe in measured] for q in QUANTITIES}


def header() -> dict:
    """What the numbers depend on."""
    return stored_study.header(asdict(Settings()), SEEDS, PROBES, QUANTITIES)


class Study(StoredStudy):
    """The stored numbers. `curves` maps a `key` to what `Measured` has, per quantity [probes][seeds]."""

    def curve(self, p: float, depth: int, treatment: str, quantity: str) -> list[list[float]]:
        """[probes][seeds]. Raises ValueError, naming what there is, for a run that is not in the study."""
        return self.run(key(p, depth, treatment))[quantity]

    def final(self, p: float, depth: int, treatment: str, quantity: str) -> list[float]:
        """One number per seed, at the end."""
        return self.curve(p, depth, treatment, quantity)[-1]

    def difference(
        self, p: float, depth: int, treatment: str, quantity: str, against: str = "baseline", probe: int = -1
    ) -> Interval:
        """Treatment minus baseline, paired by seed: the mean and its 95% t interval; `probe` counts in `probes`."""
        first, second = (self.curve(p, depth, name, quantity)[probe] for name in (treatment, against))
        return paired_difference(first, second)

    def differences(self, quantity: str, treatments: Iterable[str], probe: int = -1) -> dict[str, dict[str, Interval]]:
        """Per setting ("2 layers, p = 0.1"), per treatment: its difference to the baseline."""
        treatments = list(treatments)
        return {
            f"{depth} layers, p = {p:g}": {t: self.difference(p, depth, t, quantity, probe=probe) for t in treatments}
            for depth, p in product(DEPTHS, PS)
        }

    def same(self, first: str, second: str) -> bool:
        """True where two treatments have the same numbers, in every setting, to the last stored digit."""
        return all(self.curves[key(p, d, first)] == self.curves[key(p, d, second)] for d, p in product(DEPTHS, PS))


def load(path: Path = STORED) -> Study:
    """The stored study. Raises FileNotFoundError, with the command that makes it, where it is missing or unfinished."""
    return Study.read(path, "training study", (name for name, *_ in conditions()))
