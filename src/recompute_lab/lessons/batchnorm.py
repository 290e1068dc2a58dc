"""Lesson 05, BatchNorm: what a checkpointed step does to running statistics, and what other momenta make of it."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch.nn import functional as F

from recompute_lab.instruments.checkpointing import NON_REENTRANT, PLAIN, REENTRANT, Strategy
from recompute_lab.instruments.state import same_bits
from recompute_lab.repairs.momentum import momentum_for
from recompute_lab.specimens.batchnorm_net import BatchNormNet, Nest
from recompute_lab.specimens.batchnorm_training import BatchNormRun, Settings, Statistics, drifted
from recompute_lab.specimens.digits import digit_images
from recompute_lab.specimens.threads import threads

WAYS = {"plain": PLAIN, "reentrant": REENTRANT, "non-reentrant": NON_REENTRANT}
TORCHS = {name: way for name, way in WAYS.items() if way is not PLAIN}

# What is given to a checkpointed BatchNorm in place of the momentum m that one wants.
RECIPES: dict[str, Callable[[float], float]] = {
    "m": lambda m: m,
    "sqrt(m)": math.sqrt,
    "1 - sqrt(1 - m)": momentum_for,
}


@dataclass(frozen=True)
class Deviation:
    """How far running statistics got from others: the largest absolute difference, over all steps and channels.

    `tracked` and `expected` are the two counters at the end.
    """

    mean: float
    variance: float
    tracked: int
    expected: int

    @classmethod
    def of(cls, found: Sequence[dict[str, Statistics]], expected: Sequence[dict[str, Statistics]]) -> Deviation:
        """Of statistics after each step, by BatchNorm. Raises ValueError where the two differ in steps or names."""
        if not found or [each.keys() for each in found] != [each.keys() for each in expected]:
            raise ValueError("compare the same BatchNorms after the same steps")
        pairs = [(a[name], b[name]) for a, b in zip(found, expected, strict=True) for name in a]
        mean = max(float((a.mean - b.mean).abs().max()) for a, b in pairs)
        variance = max(float((a.variance - b.variance).abs().max()) for a, b in pairs)
        return cls(mean, variance, pairs[-1][0].tracked, pairs[-1][1].tracked)

    @property
    def worst(self) -> float:
        return max(self.mean, self.variance)


@contextmanager
def _quiet() -> Iterator[None]:
    """One thread, and not a word of segments that the reentrant implementation runs without gradients."""
    with threads(1), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "None of the inputs have requires_grad")
        yield


# Training, side by side


def train(
    steps: int = 40,
    momentum: float | None = 0.1,
    drift: float = 1.0,
    seed: int = 0,
    ways: Iterable[str] = WAYS,
    probes: Iterable[int] = (),
    device: str | torch.device = "cpu",
) -> dict[str, BatchNormRun]:
    """One run per way to run the segment, from the same weights and over the same batches."""
    settings = Settings(steps, momentum=momentum, drift=drift, seed=seed)
    return {name: BatchNormRun(settings, WAYS[name], device).train(probes) for name in ways}


def trained_alike(run: BatchNormRun, other: BatchNormRun) -> bool:
    """Are the losses and gradients of every step, and the weights after the last, equal bit for bit?"""
    taken = [[(step.loss, step.gradients) for step in each.history] for each in (run, other)]
    weights = zip(run.net.parameters(), other.net.parameters(), strict=True)
    return taken[0] == taken[1] and all(same_bits(a, b) for a, b in weights)


def courses(runs: dict[str, BatchNormRun], own: BatchNormRun, channel: int = 3) -> dict[str, dict[str, list[float]]]:
    """Of one channel of the second BatchNorm: mean and variance before the first step and after each, per run.

    `own` is a run of momentum 1, whose statistics are the last batch's own; they go by the name "batch".
    """

    def values(run: BatchNormRun, quantity: str) -> list[float]:
        kept = [run.start, *(step.statistics for step in run.history)]
        return [float(getattr(each["norm2"], quantity)[channel]) for each in kept]

    return {
        f"running {quantity}, one channel": {
            **{name: values(run, quantity) for name, run in runs.items()},
            "batch": values(own, quantity)[1:],
        }
        for quantity in ("mean", "variance")
    }


def deviation(run: BatchNormRun, baseline: BatchNormRun, after: int = 0) -> Deviation:
    """Of both BatchNorms, over all steps behind the first `after`."""
    return Deviation.of(*([step.statistics for step in each.history[after:]] for each in (run, baseline)))


def recipes(
    way: str = "non-reentrant",
    momentum: float = 0.1,
    steps: int = 40,
    drift: float = 1.0,
    seed: int = 0,
    device: str | torch.device = "cpu",
) -> dict[str, Deviation]:
    """Per recipe, a checkpointed run against the plain run with `momentum`."""
    given = dict(steps=steps, drift=drift, seed=seed, device=device)
    plain = train(momentum=momentum, ways=["plain"], **given)["plain"]
    return {
        name: deviation(train(momentum=recipe(momentum), ways=[way], **given)[way], plain)
        for name, recipe in RECIPES.items()
    }


# What a step can look like


@dataclass
class Setup:
    """A network, a way to run its segment, and where its batches come from; weights stay as they are.

    `loss` takes the next batch, drawn from the digits, in a light that grows from batch to batch; the digits are bright
    on dark, or `negative`.
    """

    net: BatchNormNet
    run: Strategy
    order: torch.Generator
    taken: int = 0

    def loss(self, plainly: bool = False, negative: bool = False) -> torch.Tensor:
        images, labels = digit_images()
        picks = torch.randint(len(labels), (32,), generator=self.order)
        self.taken += 1
        seen = drifted(1 - images[picks] if negative else images[picks], 1.0, self.taken / 40)
        return F.cross_entropy(self.net(seen, None if plainly else self.run), labels[picks])


def _usual(step: Setup) -> None:
    step.loss().backward()


def _two_forwards(step: Setup) -> None:
    first, second = step.loss(), step.loss()
    first.backward()
    second.backward()


def _two_kinds(step: Setup) -> None:
    first, second = step.loss(), step.loss(negative=True)
    first.backward()
    second.backward()


def _sum_of_two(step: Setup) -> None:
    (step.loss() + step.loss(negative=True)).backward()


def _outside_too(step: Setup) -> None:
    step.loss().backward()
    step.loss(plainly=True).backward()


def _no_backward(step: Setup) -> None:
    step.loss().backward()
    with torch.no_grad():
        step.loss()


def _backward_twice(step: Setup) -> None:
    loss = step.loss()
    loss.backward(retain_graph=True)
    loss.backward()


@dataclass(frozen=True)
class Situation:
    """What a step does, and which BatchNorms are looked at: those whose names start with `names`."""

    step: Callable[[Setup], None]
    names: str = "norm"


SITUATIONS = {
    "forward, backward": Situation(_usual),
    "two forwards, then two backwards": Situation(_two_forwards),
    "the same, of two kinds of images": Situation(_two_kinds),
    "two kinds, one backward of their sum": Situation(_sum_of_two),
    "also used outside a checkpoint": Situation(_outside_too),
    "a second forward without a backward": Situation(_no_backward),
    "one forward, backward twice": Situation(_backward_twice),
    "behind the last saved tensor": Situation(_usual, "monitor"),
}


def statistics_in(
    situation: str, run: Strategy, momentum: float | None, steps: int = 20, seed: int = 0
) -> list[dict[str, Statistics]]:
    """After each step of a situation, the statistics of the BatchNorms that it looks at.

    Raises ValueError, naming the choices, for an unknown situation.
    """
    if situation not in SITUATIONS:
        raise ValueError(f"{situation!r} is none of: {', '.join(SITUATIONS)}")
    how = SITUATIONS[situation]
    net = BatchNormNet(momentum, seed, monitor=how.names == "monitor")
    step = Setup(net, run, torch.Generator().manual_seed(seed))
    found = []
    with _quiet():
        for _ in range(steps):
            how.step(step)
            norms = {name: norm for name, norm in net.norms().items() if name.startswith(how.names)}
            found.append({name: Statistics.of(norm) for name, norm in norms.items()})
    return found


def situations(
    way: str = "non-reentrant", momentum: float | None = 0.1, steps: int = 20, corrected: bool = True
) -> dict[str, Deviation]:
    """Per situation, checkpointed against plain. `corrected` gives the checkpointed run 1 - sqrt(1 - momentum).

    With a momentum of None there is nothing to correct.
    """
    given = momentum_for(momentum) if corrected and momentum is not None else momentum
    return {
        name: Deviation.of(statistics_in(name, WAYS[way], given, steps), statistics_in(name, PLAIN, momentum, steps))
        for name in SITUATIONS
    }


# The cumulative average


@dataclass(frozen=True)
class Cumulative:
    """A BatchNorm with momentum None, plain and checkpointed, over the same batches.

    `first` is the deviation after the first step, `later` the largest after any step; `between` is the largest between
    a forward and its backward. `resumed` is the largest after a plain run's statistics were taken over after half of
    the steps, and `expected` that of the same statistics from what the theory gives: every batch weighs as often as it
    was counted. `back` is the largest after a checkpointed run's statistics were taken over by a plain run.
    """

    first: Deviation
    later: Deviation
    between: Deviation
    resumed: Deviation
    expected: Deviation
    back: Deviation


def cumulative(way: str = "non-reentrant", steps: int = 20, seed: int = 0) -> Cumulative:
    """Measure all of it: see `Cumulative`."""
    half = steps // 2
    plain, plain_between = _cumulative([PLAIN] * steps, seed)
    doubled, doubled_between = _cumulative([WAYS[way]] * steps, seed)
    resumed, _ = _cumulative([PLAIN] * half + [WAYS[way]] * (steps - half), seed)
    back, _ = _cumulative([WAYS[way]] * half + [PLAIN] * (steps - half), seed)
    return Cumulative(
        first=Deviation.of(doubled[:1], plain[:1]),
        later=Deviation.of(doubled, plain),
        between=Deviation.of(doubled_between[1:], plain_between[1:]),
        resumed=Deviation.of(resumed, plain),
        expected=Deviation.of(resumed, _weighted([1] * half + [2] * (steps - half), seed)),
        back=Deviation.of(back, plain),
    )


def _cumulative(ways: Sequence[Strategy], seed: int) -> tuple[list[dict], list[dict]]:
    """Statistics after each step, and between each forward and its backward; one way to run the segment per step."""
    net = BatchNormNet(None, seed)
    step = Setup(net, PLAIN, torch.Generator().manual_seed(seed))
    after, between = [], []
    with threads(1):
        for way in ways:
            step.run = way
            loss = step.loss()
            between.append({name: Statistics.of(norm) for name, norm in net.norms().items()})
            loss.backward()
            after.append({name: Statistics.of(norm) for name, norm in net.norms().items()})
    return after, between


def _weighted(weights: Sequence[int], seed: int) -> list[dict[str, Statistics]]:
    """After each step, the mean of the batches' own statistics, each as often as its weight says; in float64."""
    batches = statistics_in("forward, backward", PLAIN, 1.0, len(weights), seed)  # momentum 1 keeps the last batch
    found = []
    for steps in range(1, len(weights) + 1):
        share = torch.tensor(weights[:steps], dtype=torch.float64) / sum(weights[:steps])
        found.append(
            {
                name: Statistics(
                    share @ torch.stack([batch[name].mean.double() for batch in batches[:steps]]),
                    share @ torch.stack([batch[name].variance.double() for batch in batches[:steps]]),
                    sum(weights[:steps]),
                )
                for name in batches[0]
            }
        )
    return found


# Nesting


def nested(
    strategy: Strategy, depth: int, behind: Sequence[bool] | None = None, momentum: float = 0.1, steps: int = 1
) -> list[dict[str, Statistics]]:
    """After each step, what a BatchNorm inside `depth` nested segments keeps; see `Nest`. Batches are of its own kind.

    Raises ValueError for a depth and `behind` that do not fit: see `Nest`.
    """
    module = Nest(depth, strategy, behind, momentum)
    generator = torch.Generator().manual_seed(0)
    found = []
    with _quiet():
        for step in range(steps):
            x = torch.randn(16, 4, generator=generator) * (1 + step / 10) + step / 10
            module(x.requires_grad_()).sum().backward()
            found.append({"norm": Statistics.of(module.norm)})
    return found


def updates_by_depth(strategy: Strategy, depths: Iterable[int] = range(5), behind: bool = False) -> dict[int, int]:
    """How often a BatchNorm inside so many nested segments is updated in one step.

    `behind` puts a layer behind the inner segment into each segment that contains one.
    """
    return {depth: nested(strategy, depth, [behind] * max(depth - 1, 0))[-1]["norm"].tracked for depth in depths}


def nested_deviations(
    strategy: Strategy, m: float = 0.1, depths: Iterable[int] = range(5), behind: bool = False
) -> dict[int, Deviation]:
    """By depth, how far momentum 1 - (1 - m)^(1/(depth + 1)) is from the same module with momentum m, run plainly."""
    found = {}
    for depth in depths:
        layers = [behind] * max(depth - 1, 0)
        plain = nested(PLAIN, depth, layers, m, steps=20)
        found[depth] = Deviation.of(nested(strategy, depth, layers, momentum_for(m, depth + 1), steps=20), plain)
    return found
