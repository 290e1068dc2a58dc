"""Lesson 03, loud or silent: every flip under every way to checkpoint it, training with flips, and the exercises."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product

import torch
from torch import nn
from torch.nn import functional as F

from recompute_lab.instruments.checkpointing import NON_REENTRANT, PLAIN, Strategy, weighted_sum
from recompute_lab.instruments.gradients import Divergence, divergence
from recompute_lab.instruments.nondeterminism import Nudge
from recompute_lab.instruments.streams import kept, process_streams
from recompute_lab.lessons.exercise import Exercises, Hints, Wrong
from recompute_lab.specimens.branches import BRANCHES, BranchingSegment
from recompute_lab.specimens.digits import digit_sequences
from recompute_lab.views.outcomes import Point

check = Exercises()
hint = Hints(check)

# What the guard says in the forward, then in the recomputation. Eight ulps are more than a norm's rounding.
DIRECTIONS = {"true, then false": {1: +8, 2: -8}, "false, then true": {1: -8, 2: +8}}

FLAGS = tuple(
    Strategy(
        f"{'reentrant' if reentrant else 'non-reentrant'}, early stop {'on' if stop else 'off'}, check {check}",
        reentrant,
        stop,
        check,
    )
    for reentrant, stop, check in product((True, False), (True, False), ("default", "none"))
)


@dataclass(frozen=True)
class Flip:
    """A segment whose guard says one thing in the forward and another in the recomputation, and its argument.

    Only the last bits differ between the passes. `nudge` counts them: rewind it before a step of one's own.
    """

    branch: str
    direction: str
    model: nn.Module
    nudge: Nudge
    segment: Callable[[torch.Tensor], torch.Tensor]
    x: torch.Tensor

    def gradients(self, strategy: Strategy) -> list[torch.Tensor]:
        """Of one step under `strategy`: those of `x` and of each parameter, zeros where there is none."""
        leaves = [self.x, *self.model.parameters()]
        for leaf in leaves:
            leaf.grad = None
        self.nudge.rewind()
        weighted_sum(strategy(self.segment, self.x)).backward()
        return [torch.zeros_like(leaf) if leaf.grad is None else leaf.grad for leaf in leaves]


def flip(branch: str | type[nn.Module], direction: str, seed: int = 0, device: str | torch.device = "cpu") -> Flip:
    """The staged flip of a branch in one of `DIRECTIONS`: the branch's limit is set to the largest ratio itself.

    `branch` is one of `BRANCHES` or a class like those. Raises ValueError, naming the choices, for anything else.
    """
    for name, choices in ((branch, BRANCHES), (direction, DIRECTIONS)):
        if isinstance(name, str) and name not in choices:
            raise ValueError(f"{name!r} is none of: {'; '.join(choices)}")
    nudge = Nudge(DIRECTIONS[direction])
    x = torch.randn(32, 16, generator=torch.Generator().manual_seed(seed)).to(device).requires_grad_()
    model = BranchingSegment(BRANCHES.get(branch, branch), nudge, seed=seed).to(device)
    model.stand_on_threshold(x)
    return Flip(str(branch), direction, model, nudge, nudge.counted(model), x)


def matrix(seed: int = 0, device: str | torch.device = "cpu") -> Iterator[tuple[Flip, Strategy, Divergence]]:
    """Every branch, direction and strategy: 5 x 2 x 8 cells, each measured against the run without checkpointing."""
    for branch, direction in product(BRANCHES, DIRECTIONS):
        case = flip(branch, direction, seed, device)
        for strategy in FLAGS:
            yield case, strategy, divergence(case.segment, case.x, strategy=strategy)


def loudness(cells: Iterable[tuple[Flip, Strategy, Divergence]]) -> list[Point]:
    """Each flip under both implementations with their defaults: noticed or not, and how harmful.

    Where a run raised, the harm is that of the same flip under the reentrant implementation, which notices nothing.
    """
    defaults = [cell for cell in cells if cell[1].early_stop and cell[1].determinism_check == "default"]
    unnoticed = {(case.branch, case.direction): r.damage for case, s, r in defaults if s.use_reentrant}
    return [
        Point(
            f"{case.branch}, {case.direction}",
            "reentrant" if s.use_reentrant else "non-reentrant",
            r.raised is not None,
            r.damage if r.raised is None else unnoticed[case.branch, case.direction],
        )
        for case, s, r in defaults
    ]


@dataclass
class Training:
    """Of each step: the loss, and the gradient of all parameters as one vector (float32; zeros where there is none)."""

    losses: list[float]
    gradients: list[torch.Tensor]

    @property
    def loss(self) -> float:
        """The mean of the last five losses."""
        return sum(self.losses[-5:]) / len(self.losses[-5:])

    @property
    def finite(self) -> bool:
        return all(bool(gradient.isfinite().all()) for gradient in self.gradients)

    def distances(self, baseline: Training) -> list[float]:
        """Step by step, the relative error |g - b| / |b| of this run's gradient g against the baseline's b."""
        pairs = zip(self.gradients, baseline.gradients, strict=True)
        return [float((g - b).norm() / b.norm()) for g, b in pairs]


def train(
    branch: str,
    direction: str,
    strategy: Strategy = PLAIN,
    steps: int = 40,
    seed: int = 0,
    device: str | torch.device = "cpu",
) -> Training:
    """Train a digit classifier around a `BranchingSegment` whose guard stands on its threshold in every step.

    Batches, weights at the start and noise depend on `seed` alone, so that two strategies start as one.
    """
    patches, labels = (data.to(device) for data in digit_sequences())
    images = patches.flatten(1)
    nudge, order = Nudge(DIRECTIONS[direction]), torch.Generator().manual_seed(seed)
    body = BranchingSegment(BRANCHES[branch], nudge, seed=seed).to(device)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        embed, head = nn.Linear(64, 16).to(device), nn.Linear(16, 10).to(device)
    parameters = [parameter for module in (embed, body, head) for parameter in module.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=0.01)
    run = Training([], [])
    for _ in range(steps):
        batch = torch.randint(0, len(labels), (64,), generator=order).to(device)
        stream = embed(images[batch])
        body.stand_on_threshold(stream)
        nudge.rewind()
        loss = F.cross_entropy(head(strategy(nudge.counted(body), stream)), labels[batch])
        optimizer.zero_grad()
        loss.backward()
        run.losses.append(loss.item())
        run.gradients.append(
            torch.cat([torch.zeros_like(p).flatten() if p.grad is None else p.grad.flatten() for p in parameters])
        )
        optimizer.step()
    return run


# --- Exercise 1: predict three new segments


def twice_if(x, w, hit):
    if hit:
        x = x * 2
    return torch.tanh(x)


def relu_if(x, w, hit):
    if hit:
        x = torch.relu(x)
    return x @ w


def sine_if(x, w, hit):
    x = torch.tanh(x)
    if hit:
        x = torch.sin(x)
    return x


NEW_SEGMENTS: dict[str, Callable] = {function.__name__: function for function in (twice_if, relu_if, sine_if)}
OUTCOMES = ("count", "metadata", "silent", "fine")


class Flipped:
    """`segment(..., hit)` with `hit` switched from one pass to the next: `first` in a forward, then the opposite."""

    def __init__(self, segment: Callable, first: bool):
        self.segment, self.hit = segment, first

    def __call__(self, *args):
        hit, self.hit = self.hit, not self.hit
        return self.segment(*args, hit)


def flipped(segment: Callable, first: bool, *args, strategy: Strategy = NON_REENTRANT) -> Divergence:
    """What comes of a step in which `hit` is `first` in the forward and the opposite in the recomputation."""
    return divergence(Flipped(segment, first), *args, strategy=strategy)


def _inputs() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return tuple(torch.randn(rows, 16, generator=generator).requires_grad_() for rows in (32, 16))


_WHY = {
    "count": "the recomputation has a tensor too few",
    "metadata": "a recomputed tensor has another shape",
    "silent": "count and shapes agree where torch looks, and the gradients are wrong",
    "fine": "what differs comes after the last tensor that was asked for, or saves nothing and changes nothing",
}


@check.add(
    "Write down what each pass saves, in order: tanh its result, relu its result, sin its input, x @ w both factors. "
    "A multiplication by a plain number saves nothing.",
    "Lay the recomputation's list over the forward's, slot by slot, and stop when the forward's is full. "
    "Too short: count. A slot with another shape: metadata. Else no error; then ask what backward would do with it.",
    "sine_if: the branch stands behind the last tensor that a forward without it has saved.",
)
def predict(prediction: Mapping[tuple[str, str], str]) -> str:
    """Each prediction is held against the installed torch, under `use_reentrant=False` and no other flag."""
    expected = set(product(NEW_SEGMENTS, DIRECTIONS))
    if not isinstance(prediction, Mapping) or set(prediction) != expected:
        raise Wrong("keep the table's six keys: (segment, direction) each.")
    if unknown := [said for said in prediction.values() if said not in OUTCOMES]:
        raise Wrong(f"each prediction is one of {', '.join(map(repr, OUTCOMES))}; {unknown[0]!r} is none.")
    for (name, direction), said in prediction.items():
        found = flipped(NEW_SEGMENTS[name], direction.startswith("true"), *_inputs()).outcome
        if said != found:
            raise Wrong(f"{name}, {direction}: you said {said!r}, torch says {found!r}: {_WHY.get(found, found)}.")
    return "the list of saved tensors decides what is noticed; what the branch does decides what it costs."


# --- Exercise 2: a flip that nobody notices


@check.add(
    "hit is False in the forward and True in the recomputation: that is the way in which the check does not look.",
    "The extra operation must save a tensor of the same shape as the one that is saved after it; torch.tanh saves its "
    "result, exp too. Nothing behind it may save another shape: no matrix product.",
    "if hit: x = x * torch.full_like(x, 0.5); return torch.tanh(x)",
)
def silent_flip(answer: Callable) -> str:
    """`answer(x, hit)`: silent and wrong under `use_reentrant=False`, with x [8, 16] or any other shape."""
    if not callable(answer) or isinstance(answer, type):
        raise Wrong("expected a function my_segment(x, hit), or an object to be called like one.")
    for shape in ((8, 16), (5,), (3, 4, 2)):
        x = torch.randn(shape, generator=torch.Generator().manual_seed(1)).requires_grad_()
        _must_agree_without_a_flip(answer, x)
        found = flipped(answer, False, x)
        where = f"x of shape {list(shape)}, hit False in the forward and True in the recomputation: "
        if found.outcome in ("count", "metadata", "more", "other"):
            error = found.raised
            said = {"count": "the recomputation saved fewer tensors", "metadata": "a shape differs"}
            raise Wrong(f"{where}it raises ({said.get(found.outcome, type(error).__name__)}). Wanted: no error.")
        if not math.isfinite(found.worst):
            raise Wrong(f"{where}no error, but a gradient is zero, infinite or NaN: somebody may well notice that.")
        if found.worst < 0.1 and not found.missing:
            harm = "no harm" if found.worst < 1e-5 else "too little harm"
            raise Wrong(f"{where}no error, and {harm}: the gradients are off by {found.worst:.1e}. Wanted: above 0.1.")
    without = flipped(answer, False, x, strategy=Strategy("", False, early_stop=False))
    closed = "early stop off makes it loud" if without.raised else "it stays silent even with early stop off"
    return f"no error, and gradients off by {found.worst:.1g} times their size; {closed}."


def _must_agree_without_a_flip(answer: Callable, x: torch.Tensor) -> None:
    """Raises `Wrong` unless the answer returns a tensor made of x, and both passes are one where `hit` is."""
    for hit in (False, True):
        with kept(process_streams()):
            output = answer(x, hit)
        if not isinstance(output, torch.Tensor) or not output.requires_grad:
            raise Wrong("there is nothing to differentiate: return a tensor that is computed from x, in both cases.")
        steady = divergence(lambda x, hit=hit: answer(x, hit), x, strategy=NON_REENTRANT)
        if steady.outcome != "fine" and (steady.raised or math.isfinite(steady.worst)):
            raise Wrong(
                f"without a flip of hit, too, the recomputation differs (hit {hit} in both passes): it is something "
                "else that decides. The same hit must give the same operations and the same numbers."
            )


# --- Exercise 3: which flag makes which flip loud

SWITCHES: dict[str, Strategy] = {
    "early stop off": Strategy("early stop off", False, early_stop=False),
    "check none": Strategy("check none", False, determinism_check="none"),
    "reentrant": Strategy("reentrant", True),
}
QUIET = {
    f"{branch}: {direction}": (branch, direction)
    for branch, direction in (
        ("scale of full shape", "false, then true"),
        ("gate", "false, then true"),
        ("route", "true, then false"),
        ("early exit", "true, then false"),
    )
}


@check.add(
    "Which of the three switches lets torch compare more than it does by default? Which compares less?",
    "A route saves equally many tensors of equal shapes on both ways: there is nothing to count.",
)
def loud_by(answer: Mapping[str, str]) -> str:
    """Each answer is held against the matrix: the switch that raises, or "nothing" where none does."""
    if not isinstance(answer, Mapping) or set(answer) != set(QUIET):
        raise Wrong(f"answer for these flips, under these names: {'; '.join(QUIET)}")
    choices = (*SWITCHES, "nothing")
    for name, said in answer.items():
        if said not in choices:
            raise Wrong(f"each answer is one of {', '.join(map(repr, choices))}; {said!r} is none.")
        case = flip(*QUIET[name])
        raising = [
            switch for switch, s in SWITCHES.items() if divergence(case.segment, case.x, strategy=s).raised is not None
        ]
        if said not in (raising or ["nothing"]):
            found = f"'{raising[0]}' raises" if raising else "none of the three raises"
            raise Wrong(f"{name}: you said {said!r}; measured, {found}.")
    return "only the count can be made to look both ways; where counts and shapes agree, nothing in torch looks at all."
