"""What the lessons' training studies have in common: what their numbers depend on, and where they lie."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import torch

DATA = Path(__file__).resolve().parents[3] / "notebooks" / "data"
DIGITS = 4  # of what is stored


def header(settings: dict, seeds: Sequence[int], probes: Sequence[int], quantities: Sequence[str]) -> dict:
    """What the numbers depend on."""
    return {
        "torch": torch.__version__,
        "settings": settings,
        "seeds": list(seeds),
        "probes": list(probes),
        "quantities": list(quantities),
    }


def rounded(number: float) -> float:
    return float(f"{number:.{DIGITS}g}")


def seal(told: dict) -> str:
    """One text for all that a study stores: another where a single digit is another."""
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class StoredStudy:
    """The stored numbers: what `header` has, and `curves`, by the name of a run; sealed as they were measured."""

    torch: str
    settings: dict
    seeds: list[int]
    probes: list[int]
    quantities: list[str]
    curves: dict[str, dict]
    seal: str

    def run(self, name: str) -> dict:
        """The numbers of a run. Raises ValueError, naming what there is, for one that is not in the study."""
        if name not in self.curves:
            raise ValueError(f"the study has no run '{name}'; it has: {'; '.join(self.curves)}")
        return self.curves[name]

    @classmethod
    def read(cls, path: Path, study: str, names: Iterable[str]) -> Self:
        """The study in a file. Raises FileNotFoundError, with the command that makes it, where it is missing or lacks
        one of `names`; ValueError where its numbers are not those that were measured.
        """
        command = "run `make studies` in the lab's folder: it takes some minutes"
        if not path.is_file():
            raise FileNotFoundError(f"the {study}'s numbers ({path.name}) are not there; {command}")
        told = json.loads(path.read_text(encoding="utf-8"))
        found = cls(**told)
        if missing := [name for name in names if name not in found.curves]:
            raise FileNotFoundError(f"the {study} in {path.name} lacks {len(missing)} of its runs; {command}")
        if told.pop("seal") != seal(told):
            was = f"{path.name} was changed since the {study} was measured"
            raise ValueError(f"{was}: take it from git again, or {command}")
        return found
