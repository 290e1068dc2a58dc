"""Lesson 07: evaluations repeated, checked against themselves, and nudged."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from collections.abc import Callable

import torch

from recompute_lab.instruments.agreement import Agreement
from recompute_lab.instruments.determinism import switched
from recompute_lab.instruments.evaluation import run_twice
from recompute_lab.instruments.gradients import Divergence, divergence
from recompute_lab.instruments.nondeterminism import Nudge, StagedRace
from recompute_lab.instruments.results import compared, entries
from recompute_lab.specimens import evaluations as specimens
from recompute_lab.specimens.digit_scorer import held_out, scorer
from recompute_lab.specimens.threads import threads

NEAR = 8  # ulps by which staged noise moves a value; rounding moves the values here by fewer


@functools.cache
def level() -> float:
    """The confidence that 85 in 100 of the held-out digits reach, as it was found once, before."""
    with threads(1), switched(True):
        return specimens.level_of(scorer(), held_out()[0])


def faulty() -> dict[str, Callable]:
    """The evaluations with a branch that rounding flips; each takes `noise`."""
    return {
        "threshold": functools.partial(specimens.selective, level=level()),
        "early exit": specimens.calibrated,
        "filter": specimens.valid_only,
    }


def repaired() -> dict[str, Callable]:
    """The same, each with its repair."""
    return {
        "threshold": functools.partial(specimens.selective_with_room, level=level()),
        "early exit": specimens.calibrated_for,
        "filter": specimens.valid_up_to_rounding,
    }


# --- Repeated, with real noise


def repeated(name: str, times: int = 40, device: str | torch.device = "cpu") -> tuple[list[dict], list[dict]]:
    """What runs in a row give with two threads, or on a GPU, on the same model and digits: without deterministic
    algorithms, and with them.
    """
    evaluation, model, data = faulty()[name], scorer().to(device), [part.to(device) for part in held_out()]
    found = []
    for deterministic in (False, True):
        with threads(2), switched(deterministic):
            found.append([evaluation(model, *data) for _ in range(times)])
    return tuple(found)


# --- Staged, so that it happens on every machine

_RACES: dict[str, Callable[[], StagedRace]] = {
    "mean loss": lambda: StagedRace({1: 2, 2: -2}),
    "threshold": lambda: StagedRace({1: NEAR, 2: -NEAR}),
    "early exit": lambda: StagedRace(2 * NEAR, seed=2),
    "filter": lambda: StagedRace(NEAR, seed=0),
}
RACING = {"mean loss": specimens.mean_loss, **faulty()}


def raced(name: str) -> Agreement:
    """The check of one of RACING, its race staged."""
    return checked(functools.partial(RACING[name], noise=_RACES[name]()))


def checked(evaluation: Callable, **more) -> Agreement:
    """The check of an evaluation on the held-out digits, with one thread: what it says is the same on every machine."""
    with threads(1):
        return run_twice(evaluation, scorer(), *held_out(), **more)


OTHERS: dict[str, Callable[[], Callable]] = {
    "a generator of its own": specimens.OnSomeDigits,
    "state that survives": specimens.Adapting,
    "the order of a set": lambda: specimens.in_full_batches,
}


def table() -> dict[str, Agreement]:
    """The check of all seven evaluations."""
    return {name: raced(name) for name in RACING} | {name: checked(make()) for name, make in OTHERS.items()}


def in_a_segment() -> Divergence:
    """The filter in a checkpointed segment, flipped by staged noise as in `raced`."""
    nudge = Nudge(NEAR, seed=0)

    def segment(scores: torch.Tensor) -> torch.Tensor:
        p = torch.softmax(specimens.SCALE * scores, 1)
        return torch.log(p[nudge(p.sum(1)) <= 1])

    with torch.no_grad():
        scores = scorer()(held_out()[0])
    return divergence(segment, scores.requires_grad_())


# --- How near


def distances() -> dict[str, list[int]]:
    """By how many ulps each value is above what it is compared with (negative: below), on this machine."""
    model, (patches, labels) = scorer(), held_out()
    losses = []
    with threads(1), switched(True):
        p = specimens.probabilities(model, patches)
        specimens.calibrated(model, patches, labels, noise=lambda loss: losses.append(loss.item()) or loss)
    first, second = p.topk(2).values.unbind(1)
    return {
        "filter": _ulps(p.sum(1), torch.ones(len(p))),
        "threshold": _ulps(first, torch.full_like(first, level())),
        "early exit": _ulps(torch.tensor(losses[1:]), torch.tensor(losses[:-1]).cummin(0).values),
        "class": _ulps(first, second),
    }


def _ulps(values: torch.Tensor, references: torch.Tensor) -> list[int]:
    """Between positive numbers, which stand in the order of their bits."""
    steps = values.contiguous().view(torch.int32).long() - references.contiguous().view(torch.int32).long()
    return steps.tolist()


def decided_by_rounding(evaluation: Callable) -> list[str]:
    """The numbers that move by more than rounding where noise of 8 ulps is added at what is asked about.

    Six runs are compared with one without noise: all values up, all down, and four times each in a direction of its
    own.
    """
    model, data = scorer(), held_out()
    noises = [Nudge(NEAR), Nudge(-NEAR), *(Nudge(NEAR, seed=seed) for seed in range(4))]
    with threads(1), switched(True):
        plain, _ = entries(evaluation(model, *data))
        runs = [entries(evaluation(model, *data, noise=noise))[0] for noise in noises]
    moved = [m.name for run in runs for m in compared(plain, run) if not m.agrees and not m.by_rounding]
    return list(dict.fromkeys(moved))


# --- The same evaluation with other kernels

_PROGRAM = """
import json
from recompute_lab.instruments.determinism import switched
from recompute_lab.specimens.digit_scorer import held_out, scorer
from recompute_lab.specimens.evaluations import mean_loss, valid_only
from recompute_lab.specimens.threads import threads
with threads(1), switched(True):
    model, data = scorer(), held_out()
    print(json.dumps([evaluation(model, *data) for evaluation in (valid_only, valid_only, mean_loss)]))
"""


def with_kernels(capability: str) -> list[dict]:
    """In a process of its own, with torch's CPU kernels of that name: the filter's numbers twice, then the mean loss's.

    `capability` is what torch reads from ATEN_CPU_CAPABILITY: "default" are its plain kernels. All under deterministic
    algorithms, with one thread.
    """
    environment = os.environ | {
        "ATEN_CPU_CAPABILITY": capability,
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }
    done = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=True, env=environment)
    return json.loads(done.stdout)


def orders(words: list[str], seeds: tuple[int, ...] = (0, 1)) -> list[list[str]]:
    """The order in which a set of words is iterated, in a process of its own for each PYTHONHASHSEED."""
    program = f"import json; print(json.dumps(list(set({words!r}))))"
    return [_in_a_process(program, {"PYTHONHASHSEED": str(seed)}) for seed in seeds]


def _in_a_process(program: str, environment: dict[str, str]):
    """What a program prints, as JSON."""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ | environment)
    return json.loads(done.stdout)
