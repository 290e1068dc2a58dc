"""Lesson 04: who replays which random stream, the masks of both passes, and the exercises that build a checkpoint."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace

import torch
from torch import nn

from recompute_lab.instruments.checkpointing import NON_REENTRANT, REENTRANT, Strategy
from recompute_lab.instruments.estimates import Estimate, allowed_errors
from recompute_lab.instruments.gradients import divergence
from recompute_lab.instruments.own_checkpoint import ALL_REPLAYED, NAIVE, TORCH_REPLAYED, OwnCheckpoint
from recompute_lab.instruments.state import same_bits
from recompute_lab.instruments.streams import generator_stream, kept, process_streams, seed_everything
from recompute_lab.lessons.dropout import LOST, linear_gradients
from recompute_lab.lessons.exercise import Exercises, Hints, Wrong
from recompute_lab.specimens.draws import (
    DRAWS,
    Draw,
    MaskedLayers,
    NumpyDefault,
    NumpyGenerator,
    TorchDefault,
    TorchGenerator,
)
from recompute_lab.specimens.layer_drop import LayerDropNet, layers_run
from recompute_lab.specimens.linear_dropout import Problem, expected_gradient, problem
from recompute_lab.specimens.noise import Gaussian

check = Exercises()
hint = Hints(check)

REENTRANT_LOST = replace(REENTRANT, name="reentrant, preserve_rng_state=False", preserve_rng_state=False)
TORCHS = (REENTRANT_LOST, LOST, REENTRANT, NON_REENTRANT)
STAGES = (NAIVE, TORCH_REPLAYED, ALL_REPLAYED)


def rows(number: int = 32, width: int = 16, seed: int = 0, device: str | torch.device = "cpu") -> torch.Tensor:
    """An input for the segments here: [number, width], float32, requires grad."""
    return torch.randn(number, width, generator=torch.Generator().manual_seed(seed)).to(device).requires_grad_()


class Remembering:
    """A draw that keeps every mask it gives."""

    def __init__(self, draw: Callable[[Sequence[int]], torch.Tensor]):
        self.draw, self.masks = draw, []

    def __call__(self, shape: Sequence[int]) -> torch.Tensor:
        self.masks.append(self.draw(shape))
        return self.masks[-1]


def masks(draw: Draw, strategy: Strategy, layers: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
    """Run one step with `draw` under a checkpointing strategy; the first layer's masks in both passes, [N, width] each.

    The random streams are seeded first, and afterwards stand where they stood.
    """
    remembering = Remembering(draw)
    with _streams_kept(draw):
        seed_everything(0)
        strategy(MaskedLayers(remembering, layers), rows()).sum().backward()
    return remembering.masks[0], remembering.masks[layers]


def replays(device: str | torch.device = "cpu") -> dict[str, dict[str, bool]]:
    """For each stream, for each strategy by name: are gradients and all else equal to the plain run's, bit for bit?

    The last column is the course's own checkpoint, told of the private generator.
    """
    table: dict[str, dict[str, bool]] = {}
    for name, kind in DRAWS.items():
        draw = kind(device=device)
        told = OwnCheckpoint("own, told of the generator", generators=own_generators(draw))
        segment, x = MaskedLayers(draw).to(device), rows(device=device)
        table[name] = {s.name: divergence(segment, x, strategy=s).equal for s in (*TORCHS, *STAGES, told)}
    return table


def own_generators(draw: Draw | None) -> tuple:
    """The generator that a draw holds for itself, if it has one."""
    return (draw.generator,) if hasattr(draw, "generator") else ()


# --- Exercises 1 to 4: the four stages of a checkpoint


@check.add(
    "Backward calls unpack with what pack returned for the tensor it wants: a number is enough, if it says which.",
    "In unpack, run the segment once more, under torch.enable_grad() and with saved_tensors_hooks whose pack function "
    "appends what it is given to a list. Run it only once: the list serves all further calls.",
    "What is appended should be detached, so that the second graph can go.",
)
def naive(answer: Callable) -> str:
    """`answer(segment, x)` on segments without any draw: gradients, number of runs, and what stays alive."""
    calls, alive = [], []

    def watched(x: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        for _ in range(3):
            x = torch.sin(x) * x
            alive.append(weakref.ref(x.untyped_storage()))
        return x.sum(-1)

    x = rows()
    expected = torch.autograd.grad(watched(x).square().sum(), x)[0]
    calls.clear(), alive.clear()
    output = answer(watched, x)
    if not isinstance(output, torch.Tensor):
        raise Wrong(f"a checkpoint returns what the segment returns; yours returned {type(output).__name__}.")
    if not output.requires_grad:
        raise Wrong("what your checkpoint returns has no graph, so that no backward gets into the segment.")
    if len(calls) != 1:
        raise Wrong(f"in the forward the segment ran {len(calls)} times; it should run once.")
    gc.collect()
    if any(reference() is not None for reference in alive):
        raise Wrong("after the forward, activations are still alive: pack must not hold on to the tensor it is given.")
    try:
        (gradient,) = torch.autograd.grad(output.square().sum(), x)
    except IndexError:
        raise Wrong(
            "unpack looked for a tensor behind the end of the list: the second run saved too few. In backward, "
            "gradients are switched off, and then nothing is saved: run it under torch.enable_grad(), on x itself, "
            "with hooks that collect."
        ) from None
    except TypeError as error:
        if "unpack_hook expected to be a Tensor" not in str(error):
            raise
        raise Wrong("unpack must return the tensor that stood at that place; yours returns something else.") from None
    if len(calls) == 1:
        raise Wrong("backward came through without running the segment again: what did unpack give it?")
    if not same_bits(gradient, expected):
        raise Wrong("the gradient is not the plain run's: unpack must return the tensor that stood at that place.")
    if len(calls) > 2:
        raise Wrong(f"backward ran the segment {len(calls) - 1} times: once brings all the tensors back.")
    return "two runs, equal gradients, and nothing alive in between. That is all that checkpointing is."


class _Staged:
    """A learner's (capture, replay) in a checkpoint: the second run of a segment happens inside `replay(state)`."""

    def __init__(self, capture: Callable, replay: Callable, generators: tuple = ()):
        self.capture, self.replay, self.named = capture, replay, (list(generators),) if generators else ()

    def __call__(self, segment: Callable, x: torch.Tensor) -> torch.Tensor:
        state, runs = self.capture(*self.named), []

        def second_time_replayed(x):
            runs.append(1)
            if len(runs) == 1:
                return segment(x)
            with self.replay(state, *self.named):
                return segment(x)

        return NAIVE(second_time_replayed, x)


def _passes(staged: _Staged, draw: Callable) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The masks of two segments' forwards and of the first one's recomputation, in one step."""
    remembering = Remembering(draw)
    segment, x = MaskedLayers(remembering, layers=1), rows()
    first = staged(segment, x)
    second = staged(segment, x)
    first.sum().backward()
    forward, other, recomputed = remembering.masks
    second.sum().backward()
    return forward, other, recomputed


def _ahead(draw: Draw) -> torch.Tensor:
    """What the draw would give next: [64]. Its stream stays where it is."""
    with _streams_kept(draw):
        return draw((64,))


def _streams_kept(draw: Draw | None = None) -> AbstractContextManager:
    """Afterwards the process's streams, and the draw's own, stand where they stood."""
    return kept(process_streams() + [generator_stream(g) for g in own_generators(draw)])


def _must_replay(staged: _Staged, draw: Draw, name: str) -> None:
    """Raises `Wrong` unless a recomputation sees the forward's numbers, and nobody else sees any of it."""
    draw((7,))  # away from where a seed might have put it
    expected = _ahead(draw)
    staged.capture(*staged.named)
    if not same_bits(_ahead(draw), expected):
        raise Wrong(f"capturing moved the stream ({name}): it must read the state, and neither draw nor seed.")
    forward, other, recomputed = _passes(staged, draw)
    if not same_bits(forward, recomputed):
        raise Wrong(
            f"the recomputation drew another mask than the forward ({name}). Its state must be the one from the "
            "segment's entry, and must be in place before the segment runs again, not after."
        )
    if same_bits(forward, other):
        raise Wrong(f"two segments drew one and the same mask ({name}): a seed is not a state.")
    for when in ("the recomputation", "a recomputation that raised"):
        runs = []

        def segment(x, raises=when != "the recomputation", runs=runs):
            runs.append(1)
            x = torch.tanh(x * draw(x.shape))
            if raises and len(runs) == 2:
                raise InterruptedError
            return x

        output = staged(segment, rows())
        draw((8,))  # somebody draws between the forward and its recomputation
        expected = _ahead(draw)
        with suppress(InterruptedError):
            output.sum().backward()
        if not same_bits(_ahead(draw), expected):
            raise Wrong(
                f"after {when} the stream ({name}) does not go on from where it stood before it: what comes next would "
                "draw the same numbers again. Put it back, also if the segment raises (try ... finally)."
            )


def _two(answer) -> tuple[Callable, Callable]:
    if not isinstance(answer, tuple | list) or len(answer) != 2 or not all(map(callable, answer)):
        raise Wrong("give both functions, as a pair.")
    return answer


@check.add(
    "torch.get_rng_state() reads the state of the CPU's default generator, torch.set_rng_state(state) sets it.",
    "replay: remember where the stream stands now, set the captured state, yield, and in a finally set back what you "
    "remembered.",
)
def torch_stream(answer: tuple[Callable, Callable]) -> str:
    """`capture()` and the context manager `replay(state)`, put into a checkpoint."""
    capture, replay = _two(answer)
    with _streams_kept():
        manager = replay(capture())
        if not hasattr(manager, "__enter__"):
            raise Wrong("`with replay(state):` needs a context manager: keep the line @contextmanager above replay.")
        if getattr(manager, "gen", manager) is None:
            raise Wrong("replay has no yield: what stands before it is done first, then the second run, then the rest.")
        _must_replay(_Staged(capture, replay), TorchDefault(), "torch's default")
    return "the recomputation sees the forward's numbers, and everybody else goes on as if nothing had happened."


@check.add(
    "Besides torch: random.getstate(), random.setstate(state); np.random.get_state(), np.random.set_state(state).",
    "A torch.Generator has get_state() and set_state(state). Nobody can find them all, so they are named: generators.",
    "read: one tuple with all four; write: set each of them from its place in that tuple.",
)
def every_stream(answer: tuple[Callable, Callable]) -> str:
    """`read(generators)` and `write(states, generators)`, for torch, Python, NumPy, and a named torch.Generator."""
    read, write = _two(answer)

    @contextmanager
    def replay(states, generators) -> Iterator[None]:
        now = read(generators)
        try:
            write(states, generators)
            yield
        finally:
            write(now, generators)

    draws = {name: kind() for name, kind in DRAWS.items() if kind is not NumpyGenerator}
    # Several are named, and the draw's own is neither the first nor the last.
    around = torch.Generator(), torch.Generator()
    staged = {
        name: _Staged(read, replay, (around[0], *own_generators(draw), around[1])) for name, draw in draws.items()
    }
    missed = []
    with _streams_kept():
        for name, draw in draws.items():
            forward, _, recomputed = _passes(staged[name], draw)
            if not same_bits(forward, recomputed):
                missed.append(name)
        if missed:
            only = " Several are named, and each has a state of its own." if missed == [_NAMED] else ""
            raise Wrong(f"not replayed: {', '.join(missed)}. The recomputation drew other masks from there.{only}")
        for name, draw in draws.items():
            _must_replay(staged[name], draw, name)
    return "every stream that you named. One that you did not name is lost as before: nobody can find them all."


_NAMED = next(name for name, kind in DRAWS.items() if kind is TorchGenerator)

_A, _B = ((32, 16), torch.float32, "cpu"), ((16, 16), torch.float32, "cpu")
_PAIRS: dict[str, tuple[list, list, bool]] = {
    "both passes saved the same": ([_A, _B], [_A, _B], False),
    "both saved nothing": ([], [], False),
    "the recomputation saved one tensor fewer": ([_A, _A], [_A], True),
    "the recomputation saved one tensor more": ([_A], [_A, _A], True),
    "the recomputation saved one where the forward saved none": ([], [_A], True),
    "a shape differs": ([_A, _B], [_A, ((16, 1), torch.float32, "cpu")], True),
    "a dtype differs": ([_A, _B], [((32, 16), torch.float64, "cpu"), _B], True),
    "a device differs": ([_A], [((32, 16), torch.float32, "cuda:0")], True),
    "two tensors changed places": ([_A, _B], [_B, _A], True),
}


@check.add(
    "Two lists that must be equal: in Python that is one comparison.",
    "zip stops at the end of the shorter list, so it alone cannot see a count.",
)
def both_ways(answer: Callable) -> str:
    """`answer(saved, recomputed)`, lists of (shape, dtype, device): raises where they differ, in either direction."""
    for case, (saved, recomputed, differs) in _PAIRS.items():
        try:
            answer(list(saved), list(recomputed))
            raised = None
        except Exception as error:
            raised = error
        if differs and raised is None:
            raise Wrong(f"{case}: your comparison lets it pass.")
        if not differs and raised is not None:
            raise Wrong(f"{case}, and your comparison raised {type(raised).__name__}.")
    return "a flip that saves more is found like one that saves less; torch's own looks one way, as lesson 03 showed."


# --- Exercise 5: a module that owns a generator


class Noisy(nn.Module):
    """Half of its hidden values are dropped, by a generator of its own: [N, 16] -> [N, 16]."""

    def __init__(self, seed: int = 0):
        super().__init__()
        self.linear = nn.Linear(16, 16)
        self.generator = torch.Generator().manual_seed(seed)

    def mask(self, shape: Sequence[int]) -> torch.Tensor:
        return (torch.rand(shape, generator=self.generator) >= 0.5) * 2.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.linear(x) * self.mask(x.shape))


@check.add(
    "Which streams do both implementations replay by default? Draw from there.",
    "If the module must have its own generator: seed it anew in each call, with a number drawn from torch's default.",
    "return (torch.rand(shape) >= 0.5) * 2.0",
)
def repair_generator(answer: Callable) -> str:
    """`answer(module, shape)` takes the place of `Noisy.mask`; checkpointed by torch with its defaults."""

    class Repaired(Noisy):
        mask = answer

    with _streams_kept():
        seed_everything(0)
        module, x = Repaired(), rows()
        drawn = [module.mask((64, 16)) for _ in range(2)]
        dropped = float((drawn[0] == 0).float().mean())
        if not (0.4 < dropped < 0.6 and set(drawn[0].unique().tolist()) == {0.0, 2.0}):
            raise Wrong(
                f"a mask is 0 in half of the places and 2 in the others; yours is 0 in {dropped:.0%}. Keep the noise."
            )
        if drawn[0].shape != (64, 16):
            raise Wrong(f"a mask has the shape that is asked for: for [64, 16] yours has {list(drawn[0].shape)}.")
        if any(len(drawn[0].unique(dim=way)) < drawn[0].shape[way] // 2 for way in (0, 1)):
            raise Wrong("whole rows or columns of your mask are alike: each place is drawn for itself.")
        if same_bits(*drawn):
            raise Wrong("two calls in a row give one and the same mask: that is no dropout. A seed is no repair.")
        for strategy in (NON_REENTRANT, REENTRANT):
            result = divergence(module, x, strategy=strategy)
            if result.outcome != "fine":
                raise Wrong(
                    f"{strategy.name}: gradients are off by {result.worst:.2f} of their size, without an error. The "
                    "recomputation still draws from a stream that nobody rewinds."
                )
    return "fresh noise in every step, the same in both passes of a step."


# --- Exercise 6: the expected gradient, for another noise


@check.add(
    "E[z zᵀ] = x xᵀ + the variances of z on the diagonal. The variance of x (1 + s ε) is s² x².",
    "Replayed: the residual and the input have one noise, so E[z zᵀ] appears. Lost: two independent noises, so the "
    "expectations multiply, and E[z] = x.",
    "least squares: 2/n Xᵀ(Xw − y). The penalty's gradient: 2 s² times the mean over samples of x², times w.",
)
def expected_gradients(answer: Callable) -> str:
    """`answer(x, y, w, s)` returns the expectations (replayed, lost), [d] each, for inputs times N(1, s^2).

    Held against a simulation through real checkpointing, component by component.
    """
    case = problem(seed=3)
    for s in (0.5, 1.0):
        given = answer(case.x.clone(), case.y.clone(), case.w.clone(), s)  # it may work on them in place
        if not isinstance(given, tuple | list | torch.Tensor) or len(given) != 2:
            raise Wrong("return two gradients: (replayed, lost).")
        draws = linear_gradients(case, Gaussian(s), 10_000, ("replayed", "lost"))
        within = allowed_errors(2 * len(case.w))
        for (name, samples), mine in zip(draws.items(), given, strict=True):
            mine = torch.as_tensor(mine, dtype=torch.float64).detach()
            if mine.shape != case.w.shape:
                raise Wrong(f"{name}: a gradient has the shape of w, {list(case.w.shape)}; got {list(mine.shape)}.")
            off = float(Estimate.of(samples).errors_from(mine).abs().max())
            if not off <= within:  # a NaN is no answer
                raise Wrong(
                    f"{name}, s = {s:g}: {off:.0f} standard errors from what {len(samples):,} checkpointed steps "
                    f"average to; chance allows {within:.1f}. {_guess(mine, case, s)}"
                )
    return "your formulas are what checkpointed steps average to, replayed and lost: the penalty is there, or is not."


def _guess(mine: torch.Tensor, case: Problem, s: float) -> str:
    """What went wrong, where the answer is a known slip."""
    least_squares, ridge = (expected_gradient(case, Gaussian(s), penalised) for penalised in (False, True))
    square, samples = "Twice that: the square's derivative has a factor 2.", len(case.y)
    decay = 2 * s**2 * case.w
    slips = (
        ("That is the replayed gradient: with two noises nothing is left of the variance.", ridge),
        ("That is least squares alone: one noise in both factors adds its variance.", least_squares),
        (square, ridge / 2),
        (square, least_squares / 2),
        ("The mean over the samples, not the sum: divide by n.", least_squares * samples),
        ("The mean over the samples, not the sum: divide by n.", ridge * samples),
        ("The penalty is not one for all weights: each has the squares of its own inputs.", least_squares + decay),
        ("The variance is s², not s.", least_squares + (ridge - least_squares) / s),
        ("The penalty is Σ rᵢ wᵢ²: its gradient has a factor 2.", (least_squares + ridge) / 2),
        (
            "In the penalty, too, the mean over the samples, not the sum.",
            least_squares + (ridge - least_squares) * samples,
        ),
    )
    known = [slip for slip, value in slips if torch.allclose(mine, value, rtol=1e-6)]
    return known[0] if known else "Write down E[z zᵀ] for one noise, and E[z] E[z]ᵀ for two."


# --- Exercise 7: symptom and mechanism

SYMPTOMS = ("right", "silent", "count")
MECHANISMS = ("replayed", "replay switched off", "a stream that nobody rewinds", "the draw decides the graph")


def _layer_drop() -> str:
    """One step of a network whose recomputation runs fewer layers than its forward."""
    seed = next(s for s in range(100) if sum((passes := layers_run(0.25, 8, s))[0]) > sum(passes[1]))
    seed_everything(seed)
    return divergence(LayerDropNet(0.25, 8), rows(), strategy=LOST).outcome


def _masked(draw: Draw, strategy: Strategy) -> str:
    return divergence(MaskedLayers(draw), rows(), strategy=strategy).outcome


CASES: dict[str, tuple[str, str, Callable[[], str]]] = {
    "A": ("nn.Dropout, use_reentrant=False, nothing else", "replayed", lambda: _masked(TorchDefault(), NON_REENTRANT)),
    "B": (
        "nn.Dropout, use_reentrant=True, preserve_rng_state=False",
        "replay switched off",
        lambda: _masked(TorchDefault(), REENTRANT_LOST),
    ),
    "C": (
        "masks from np.random, use_reentrant=False",
        "a stream that nobody rewinds",
        lambda: _masked(NumpyDefault(), NON_REENTRANT),
    ),
    "D": (
        "layers skipped by torch.rand, preserve_rng_state=False; the recomputation skips more of them",
        "the draw decides the graph",
        _layer_drop,
    ),
}


@check.add(
    "A mask changes values, never shapes. What does a skipped layer change?",
    "By default both implementations rewind torch's own default generators, and nothing else.",
)
def diagnose(answer: dict) -> str:
    """`answer[case] = (symptom, mechanism)`; the symptoms are measured."""
    if not isinstance(answer, dict) or set(answer) != set(CASES):
        raise Wrong(f"answer for the cases {', '.join(CASES)}.")
    with _streams_kept():
        for case, (told, mechanism, run) in CASES.items():
            given = answer[case]
            if not isinstance(given, tuple | list) or len(given) != 2:
                raise Wrong(f"{case}: give a pair, (symptom, mechanism).")
            for said, choices in zip(given, (SYMPTOMS, MECHANISMS), strict=True):
                if said not in choices:
                    raise Wrong(f"{case}: {said!r} is none of {', '.join(map(repr, choices))}.")
            found = {"fine": "right"}.get(outcome := run(), outcome)
            if given[0] != found:
                raise Wrong(f"{case} ({told}): you said {given[0]!r}; run, it is {found!r}.")
            if given[1] != mechanism:
                raise Wrong(f"{case} ({told}): the symptom is right; the mechanism is not {given[1]!r}.")
    return "symptom and mechanism. What B, C and D share: the second run's draws are not those of the first."
