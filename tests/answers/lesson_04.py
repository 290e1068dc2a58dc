"""Lesson 04, dropout: the four stages of a checkpoint, a module's own generator, expected gradients, a diagnosis."""

import itertools
import random
from collections import Counter
from contextlib import ExitStack, contextmanager

import numpy as np
import torch
from answers.answers import Answers
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.functional import dropout
from torch.utils.checkpoint import CheckpointError, checkpoint

from recompute_lab.instruments.streams import seed_everything
from recompute_lab.lessons.streams import Noisy, check

EXERCISES = check


# --- Stage 1: naive


def under(segment, x, unpack):
    places = itertools.count()
    with saved_tensors_hooks(lambda tensor: next(places), unpack):
        return segment(x)


def naive(segment, x, *, hold=False, again=False, order=1, grad=True, seen=lambda x: x):
    places, filled = itertools.count(), []

    def unpack(place):
        if hold:
            return place
        if again or not filled:
            filled.clear()
            collect = saved_tensors_hooks(lambda t: filled.append(t.detach()), lambda _: None)
            with torch.set_grad_enabled(grad), collect:
                segment(seen(x))
        return filled[::order][place]

    with saved_tensors_hooks(lambda tensor: tensor if hold else next(places), unpack):
        return segment(x)


class Recomputed(torch.autograd.Function):
    """A checkpoint in the other way, as the reentrant implementation has it."""

    @staticmethod
    def forward(ctx, segment, x):
        ctx.segment = segment
        ctx.save_for_backward(x)
        return segment(x)

    @staticmethod
    def backward(ctx, gradient):
        with torch.enable_grad():
            x = ctx.saved_tensors[0].detach().requires_grad_()
            output = ctx.segment(x)
        return None, torch.autograd.grad(output, x, gradient)[0]


def kept_elsewhere(segment, x):
    """Keeps copies that torch does not see: nothing is run again."""
    copies = []

    def pack(tensor):
        copies.append(tensor.detach().numpy().copy())
        return len(copies) - 1

    with saved_tensors_hooks(pack, lambda place: torch.from_numpy(copies[place])):
        return segment(x)


def runs_at_once(segment, x):
    filled = []
    with saved_tensors_hooks(lambda t: filled.append(t.detach()), lambda _: None):
        segment(x)
    return under(segment, x, lambda place: filled[place])


# --- Stage 2: torch's stream


def capture():
    return torch.get_rng_state()


@contextmanager
def replay(state):
    now = torch.get_rng_state()
    torch.set_rng_state(state)
    try:
        yield
    finally:
        torch.set_rng_state(now)


@contextmanager
def forked(state):
    with torch.random.fork_rng(devices=[]):
        torch.set_rng_state(state)
        yield


@contextmanager
def stacked(state):
    with ExitStack() as stack:
        stack.callback(torch.set_rng_state, torch.get_rng_state())
        torch.set_rng_state(state)
        yield


class Replay:
    def __init__(self, state):
        self.state = state

    def __enter__(self):
        self.now = torch.get_rng_state()
        torch.set_rng_state(self.state)

    def __exit__(self, *error):
        torch.set_rng_state(self.now)


@contextmanager
def after_instead_of_before(state):
    yield
    torch.set_rng_state(state)


@contextmanager
def not_put_back(state):
    torch.set_rng_state(state)
    yield


@contextmanager
def not_put_back_if_it_raises(state):
    now = torch.get_rng_state()
    torch.set_rng_state(state)
    yield
    torch.set_rng_state(now)


@contextmanager
def put_back_to_the_entry(state):
    torch.set_rng_state(state)
    try:
        yield
    finally:
        torch.set_rng_state(state)


@contextmanager
def seeded(state):
    torch.manual_seed(0)
    yield


@contextmanager
def seeded_and_put_back(state):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(torch.initial_seed())
        yield


@contextmanager
def nothing(state):
    yield


def no_context_manager(state):
    yield


@contextmanager
def without_a_yield(state):
    torch.set_rng_state(state)


latest = {}


def capture_in_one_place():
    latest["state"] = torch.get_rng_state()


@contextmanager
def replay_the_latest(_):
    with replay(latest["state"]):
        yield


# --- Stage 3: every stream


def read(generators):
    return torch.get_rng_state(), random.getstate(), np.random.get_state(), [g.get_state() for g in generators]


def write(states, generators):
    torch.set_rng_state(states[0])
    random.setstate(states[1])
    np.random.set_state(states[2])
    for generator, state in zip(generators, states[3], strict=True):
        generator.set_state(state)


def read_at_once(generators):  # a list, as the lesson says
    of_torch = [torch.default_generator] + generators
    of_numpy = np.random.get_state(legacy=False)
    return {"torch": [g.get_state() for g in of_torch], "python": random.getstate(), "numpy": of_numpy}


def write_at_once(states, generators):
    for generator, state in zip([torch.default_generator] + generators, states["torch"], strict=True):
        generator.set_state(state)
    random.setstate(states["python"])
    np.random.set_state(states["numpy"])


def read_the_first(generators):
    return torch.get_rng_state(), random.getstate(), np.random.get_state(), generators[0].get_state()


def write_the_first(states, generators):
    write((*states[:3], [states[3]]), generators[:1])


def read_one_state(generators):
    return torch.get_rng_state(), random.getstate(), np.random.get_state(), [generators[-1].get_state()] * 9


def write_one_state(states, generators):
    write((*states[:3], states[3][: len(generators)]), generators)


def seeds(generators):
    """Seeds where there should be states."""
    return [random.randrange(2**31), [g.initial_seed() for g in generators]]


def write_seeds(states, generators):
    seed_everything(states[0])
    for generator, seed in zip(generators, states[1], strict=True):
        generator.manual_seed(seed)


# --- Stage 4: compared, both ways


def compare(saved, recomputed):
    if saved != recomputed:
        raise CheckpointError("they differ")


def compare_by_hand(saved, recomputed):
    if len(saved) != len(recomputed):
        raise ValueError(f"{len(saved)} tensors, then {len(recomputed)}")
    for (shape, dtype, device), others in zip(saved, recomputed, strict=True):
        if (shape, dtype, device) != tuple(others):
            raise ValueError("metadata")


def compare_strictly(saved, recomputed):
    assert all(a == b for a, b in zip(saved, recomputed, strict=True))


def one_way(saved, recomputed):
    if len(recomputed) < len(saved):
        raise CheckpointError("fewer")
    zipped(saved, recomputed)


def zipped(saved, recomputed):
    for before, after in zip(saved, recomputed, strict=False):
        if before != after:
            raise CheckpointError("metadata")


def counted(saved, recomputed):
    assert len(saved) == len(recomputed)


def of_shapes(saved, recomputed):
    assert [entry[0] for entry in saved] == [entry[0] for entry in recomputed]


def in_any_order(saved, recomputed):
    assert Counter(saved) == Counter(recomputed)


def as_sets(saved, recomputed):
    assert set(saved) == set(recomputed)


# --- A module that owns a generator


def from_default(self, shape):
    return (torch.rand(shape) >= 0.5) * 2.0


def seeded_from_default(self, shape):
    self.generator.manual_seed(int(torch.randint(2**31, ())))
    return (torch.rand(shape, generator=self.generator) >= 0.5) * 2.0


def seeded_once(self, shape):
    self.generator.manual_seed(0)
    return (torch.rand(shape, generator=self.generator) >= 0.5) * 2.0


def seeded_by_a_count(self, shape):
    self.calls = getattr(self, "calls", 0) + 1
    self.generator.manual_seed(self.calls)
    return (torch.rand(shape, generator=self.generator) >= 0.5) * 2.0


def remembered(self, shape):
    """Draws once for two calls: for the forward, and for its recomputation."""
    if hasattr(self, "kept"):
        kept, _ = self.kept, delattr(self, "kept")
        return kept
    self.kept = Noisy.mask(self, shape)
    return self.kept


# --- Expected gradients


def gaussian(x, y, w, s, factor=2.0, power=2, lost_has_it=False, replayed_has_it=True):
    least_squares = factor / len(y) * x.T @ (x @ w - y)
    penalty = factor * s**power * x.square().mean(0) * w
    return least_squares + replayed_has_it * penalty, least_squares + lost_has_it * penalty


def in_place(x, y, w, s):
    residual = y.neg_().addmv_(x, w)
    least_squares = 2 / len(y) * x.T @ residual
    return least_squares + 2 * s**2 * x.square_().mean(0) * w, least_squares


def by_autograd(x, y, w, s):
    w = w.clone().requires_grad_()
    fit = (x @ w - y).square().mean()
    penalty = s**2 * (x.square().mean(0) * w.square()).sum()
    return [torch.autograd.grad(loss, w, retain_graph=True)[0] for loss in (fit + penalty, fit)]


def without_a_mean(x, y, w, s):
    replayed, lost = gaussian(x, y, w, s)
    return len(y) * replayed, len(y) * lost


def ridge(x, y, w, s):
    """The penalty of plain weight decay."""
    lost = gaussian(x, y, w, s)[1]
    return lost + 2 * s**2 * w, lost


# --- Diagnosis

DIAGNOSIS = {
    "A": ("right", "replayed"),
    "B": ("silent", "replay switched off"),
    "C": ("silent", "a stream that nobody rewinds"),
    "D": ("count", "the draw decides the graph"),
}


ANSWERS = {
    "naive": Answers(
        right=[
            (naive,),
            (lambda segment, x: checkpoint(segment, x, use_reentrant=False),),
            (Recomputed.apply,),
            (lambda segment, x: naive(segment, x, seen=lambda x: x.detach().requires_grad_()),),
        ],
        wrong=[
            ((lambda segment, x: segment(x),), "activations are still alive"),
            ((lambda segment, x: naive(segment, x, hold=True),), "activations are still alive"),
            ((lambda segment, x: naive(segment, x, again=True),), "once brings all the tensors back"),
            ((lambda segment, x: naive(segment, x, order=-1),), "the gradient is not the plain run's"),
            ((lambda segment, x: segment(x) if segment(x) is not None else 0,), "ran 2 times"),
            ((runs_at_once,), "ran 2 times"),
            ((kept_elsewhere,), "backward came through without running the segment again"),
            ((lambda segment, x: 0,), "yours returned int"),
            ((lambda segment, x: naive(segment, x, grad=False),), "run it under torch.enable_grad()"),
            ((lambda segment, x: naive(segment, x, seen=torch.Tensor.detach),), "on x itself"),
            ((lambda segment, x: under(segment, x, lambda place: None),), "yours returns something else"),
            ((lambda segment, x: segment(x).detach(),), "has no graph"),
            ((lambda segment, x: checkpoint(segment, x, use_reentrant=True),), "your answer raised RuntimeError"),
        ],
    ),
    "torch_stream": Answers(
        right=[
            ((capture, replay),),
            ([capture, replay],),
            ((torch.get_rng_state, forked),),
            ((lambda: torch.default_generator.get_state(), stacked),),
            ((capture, Replay),),
        ],
        wrong=[
            (((capture, after_instead_of_before),), "before the segment runs again, not after"),
            (((capture, not_put_back),), "after the recomputation the stream (torch's default) does not go on"),
            (((capture, put_back_to_the_entry),), "after the recomputation the stream (torch's default) does not go"),
            (((capture, not_put_back_if_it_raises),), "after a recomputation that raised"),
            (((capture, nothing),), "drew another mask"),
            (((capture_in_one_place, replay_the_latest),), "drew another mask"),
            (((torch.initial_seed, seeded_and_put_back),), "drew another mask"),
            (((lambda: torch.manual_seed(0), seeded),), "capturing moved the stream"),
            (((lambda: 0, seeded),), "drew another mask"),
            (((lambda: torch.rand(1), nothing),), "capturing moved the stream"),
            (((capture, no_context_manager),), "keep the line @contextmanager"),
            (((capture, without_a_yield),), "has no yield"),
            ((capture,), "as a pair"),
        ],
    ),
    "every_stream": Answers(
        right=[((read, write),), ([read, write],), ((read_at_once, write_at_once),)],
        wrong=[
            (
                ((lambda generators: torch.get_rng_state(), lambda state, generators: torch.set_rng_state(state)),),
                "not replayed: a torch.Generator, NumPy's default, Python's random.",
            ),
            (((read, lambda states, generators: write((*states[:3], []), [])),), "not replayed: a torch.Generator."),
            (((read_the_first, write_the_first),), "not replayed: a torch.Generator. "),
            (((read_one_state, write_one_state),), "Several are named, and each has a state of its own"),
            (((seeds, write_seeds),), "not replayed: "),
            (((read, lambda states, generators: seed_everything(0)),), "not replayed: "),
            (((read, lambda states, generators: 0),), "not replayed: torch's default"),
            (((lambda generators: (torch.rand(1), read(generators))[1], write),), "capturing moved the stream"),
            ((read,), "as a pair"),
        ],
    ),
    "both_ways": Answers(
        right=[(compare,), (compare_by_hand,), (compare_strictly,)],
        wrong=[
            ((one_way,), "the recomputation saved one tensor more: your comparison lets it pass"),
            ((zipped,), "the recomputation saved one tensor fewer: your comparison lets it pass"),
            ((counted,), "a shape differs: your comparison lets it pass"),
            ((of_shapes,), "a dtype differs: your comparison lets it pass"),
            ((in_any_order,), "two tensors changed places: your comparison lets it pass"),
            ((as_sets,), "the recomputation saved one tensor fewer: your comparison lets it pass"),
            ((lambda saved, recomputed: saved == recomputed,), "lets it pass"),
            ((lambda saved, recomputed: 1 / 0,), "both passes saved the same, and your comparison raised ZeroDiv"),
            (
                (lambda saved, recomputed: saved[0] == recomputed[0] or 1 / 0,),
                "both saved nothing, and your comparison",
            ),
        ],
    ),
    "repair_generator": Answers(
        right=[
            (from_default,),
            (seeded_from_default,),
            (lambda module, shape: dropout(torch.ones(shape)),),
            (lambda module, shape: torch.randint(0, 2, shape) * 2,),
            (lambda module, shape: torch.bernoulli(torch.full(shape, 0.5, dtype=torch.float64)) / 0.5,),
        ],
        wrong=[
            ((seeded_once,), "one and the same mask: that is no dropout. A seed is no repair"),
            ((remembered,), "one and the same mask"),
            ((seeded_by_a_count,), "non-reentrant: gradients are off by"),
            ((lambda self, shape: torch.ones(shape),), "yours is 0 in 0%. Keep the noise"),
            ((lambda self, shape: (torch.rand(shape) >= 0.5) * 1.0,), "0 in half of the places and 2 in the others"),
            ((lambda self, shape: (torch.rand(shape[0], 1) >= 0.5) * 2.0,), "a mask has the shape that is asked for"),
            (
                (lambda self, shape: ((torch.rand(shape[0], 1) >= 0.5) * 2.0).expand(shape),),
                "each place is drawn for itself",
            ),
            ((Noisy.mask,), "a stream that nobody rewinds"),
            (
                (lambda self, shape: torch.as_tensor(np.random.rand(*shape) >= 0.5, dtype=torch.float32) * 2,),
                "non-reentrant: gradients are off by",
            ),
            ((lambda shape: from_default(None, shape),), "your answer raised TypeError"),
        ],
    ),
    "expected_gradients": Answers(
        right=[
            (gaussian,),
            (in_place,),
            (by_autograd,),
            (lambda x, y, w, s: [g.tolist() for g in gaussian(x, y, w, s)],),
            (lambda x, y, w, s: torch.stack(gaussian(x.float(), y.float(), w.float(), s)),),
            (lambda x, y, w, s: gaussian(x, y, w.requires_grad_(), s),),
        ],
        wrong=[
            ((lambda *a: gaussian(*a, replayed_has_it=False),), "replayed, s = 0.5: "),
            ((lambda *a: gaussian(*a, replayed_has_it=False),), "That is least squares alone: one noise in both"),
            ((lambda *a: gaussian(*a, lost_has_it=True),), "That is the replayed gradient: with two noises nothing"),
            ((lambda *a: gaussian(*a)[::-1],), "That is least squares alone"),
            ((lambda *a: gaussian(*a, factor=1.0),), "the square's derivative has a factor 2"),
            ((lambda *a: gaussian(*a, power=1),), "The variance is s², not s."),
            ((ridge,), "The penalty is not one for all weights"),
            ((without_a_mean,), "The mean over the samples, not the sum"),
            ((lambda x, y, w, s: gaussian(x, y, w, s)[0],), "return two gradients"),
            ((lambda x, y, w, s: (w, w),), "Write down E[z zᵀ] for one noise"),
            ((lambda x, y, w, s: (w[:2], w),), "replayed: a gradient has the shape of w, [5]; got [2]"),
            ((lambda x, y, w, s: (w * float("nan"), w * float("nan")),), "replayed, s = 0.5: nan standard errors"),
            ((lambda x, y, w, s: 3,), "return two gradients"),
        ],
    ),
    "diagnose": Answers(
        right=[(DIAGNOSIS,), ({letter: list(said) for letter, said in DIAGNOSIS.items()},)],
        wrong=[
            (
                ({**DIAGNOSIS, "A": ("silent", "replayed")},),
                "A (nn.Dropout, use_reentrant=False, nothing else): you said 'silent'; run, it is",
            ),
            (
                ({**DIAGNOSIS, "B": ("silent", "a stream that nobody rewinds")},),
                "the symptom is right; the mechanism is not",
            ),
            (({**DIAGNOSIS, "C": ("silent", "replay switched off")},), "C (masks from np.random"),
            (({**DIAGNOSIS, "C": ("count", "a stream that nobody rewinds")},), "you said 'count'; run, it is 'silent'"),
            (({**DIAGNOSIS, "D": ("silent", "the draw decides the graph")},), "you said 'silent'; run, it is 'count'"),
            (({**DIAGNOSIS, "D": ("loud", "the draw decides the graph")},), "'loud' is none of 'right', 'silent', 'c"),
            (({**DIAGNOSIS, "D": "count"},), "give a pair"),
            (({"A": ("right", "replayed")},), "answer for the cases A, B, C, D"),
        ],
    ),
}
