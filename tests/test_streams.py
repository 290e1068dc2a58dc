"""Random streams can be read and rewound; who replays which, measured; and the exercises that build a checkpoint."""

import itertools
import random
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.checkpoint import CheckpointError, checkpoint

from recompute_lab import NON_REENTRANT, REENTRANT, divergence, same_bits
from recompute_lab.instruments.streams import Stream, generator_stream, process_streams, rewound, torch_streams
from recompute_lab.lessons import streams as lesson
from recompute_lab.lessons.exercise import NOT_ATTEMPTED, RIGHT, WRONG
from recompute_lab.lessons.streams import STAGES, TORCHS, check
from recompute_lab.specimens.draws import DRAWS, MaskedLayers, TorchDefault
from recompute_lab.views.replays import replays as replays_figure

# Streams

GENERATORS = [
    (torch.Generator(), lambda g: torch.rand(3, generator=g).tolist()),
    (random.Random(0), lambda g: g.random()),
    (np.random.default_rng(0), lambda g: g.random(3).tolist()),
    (np.random.RandomState(0), lambda g: g.rand(3).tolist()),
]


@pytest.mark.parametrize(("generator", "draw"), GENERATORS, ids=lambda value: type(value).__name__)
def test_a_generators_stream_is_read_and_rewound(generator, draw):
    stream = generator_stream(generator)
    state = stream.read()
    first = draw(generator)
    assert draw(generator) != first
    stream.write(state)
    assert draw(generator) == first


def test_the_streams_of_the_process():
    def draws():
        return torch.rand(2).tolist(), random.random(), np.random.rand()

    streams = process_streams()
    assert {"torch", "Python", "NumPy"} <= {stream.name for stream in streams}
    states = [stream.read() for stream in streams]
    first = draws()
    between = [stream.read() for stream in streams]
    second = draws()
    for stream, state in zip(streams, between, strict=True):
        stream.write(state)
    with rewound(streams, states):
        assert draws() == first
    assert draws() == second


def test_streams_are_put_back_where_something_raised():
    stream = generator_stream(generator := torch.Generator())
    state, draw = stream.read(), GENERATORS[0][1]
    expected = [draw(generator) for _ in range(2)]
    stream.write(state)
    draw(generator)
    with pytest.raises(KeyError), rewound([stream], [state]):
        draw(generator)
        raise KeyError
    assert draw(generator) == expected[1]


def test_torchs_streams_are_those_of_the_devices_of_the_tensors():
    assert [stream.name for stream in torch_streams([torch.ones(1), torch.ones(1, device="meta")])] == ["torch"]


def test_a_stream_is_a_pair_of_functions():
    held = [1]
    stream = Stream("mine", lambda: held[0], lambda value: held.__setitem__(0, value))
    with rewound([stream], [7]):
        assert held == [7]
    assert held == [1]


# Who replays what

DEFAULT, OWN_PRIVATE, NUMPY, NUMPY_OWN, PYTHON = DRAWS
TORCH_ONLY, PROCESS = {DEFAULT}, {DEFAULT, NUMPY, PYTHON}
REPLAYED = {
    "reentrant, preserve_rng_state=False": set(),
    "non-reentrant, preserve_rng_state=False": set(),
    "reentrant": TORCH_ONLY,
    "non-reentrant": TORCH_ONLY,
    "own, nothing replayed": set(),
    "own, torch's streams": TORCH_ONLY,
    "own, every stream": PROCESS,
    "own, told of the generator": set(DRAWS),
}


def test_who_replays_what():
    table = lesson.replays()
    assert {name: {stream for stream in table if table[stream][name]} for name in REPLAYED} == REPLAYED
    assert all(list(row) == list(REPLAYED) for row in table.values())


@pytest.mark.parametrize("stream", DRAWS)
@pytest.mark.parametrize("strategy", [*TORCHS, *STAGES], ids=lambda strategy: strategy.name)
def test_what_is_lost_is_silent_and_wrong(stream, strategy):
    result = divergence(MaskedLayers(DRAWS[stream]()), lesson.rows(), strategy=strategy)
    if stream in REPLAYED[strategy.name]:
        assert result.equal
    else:
        assert result.raised is None and 0.2 < result.worst < 3 and not result.missing
        first, second = lesson.masks(DRAWS[stream](), strategy)
        assert 0.4 < float((first != second).float().mean()) < 0.6


@pytest.mark.parametrize("stream", DRAWS)
@pytest.mark.parametrize("p", [0.0, 0.1, 0.5, 0.9])
def test_a_draw_is_a_mask_with_mean_one(stream, p):
    lesson.seed_everything(0)
    mask = DRAWS[stream](p)((200, 100))
    assert mask.shape == (200, 100) and mask.dtype == torch.float32
    assert set(mask.unique().tolist()) <= {0.0, float(torch.tensor(1.0) / (1 - p))}
    assert float((mask == 0).float().mean()) == pytest.approx(p, abs=0.02)


@pytest.mark.parametrize("p", [-0.1, 1.0])
def test_a_draw_refuses_what_is_no_share(p):
    with pytest.raises(ValueError, match="p is the share that is dropped"):
        TorchDefault(p)


@pytest.mark.parametrize("strategy", [REENTRANT, NON_REENTRANT])
def test_replayed_masks_are_the_same_and_the_streams_are_left_alone(strategy):
    states = [stream.read() for stream in process_streams()]
    assert same_bits(*lesson.masks(TorchDefault(), strategy))
    assert same_bits(states[0], torch.get_rng_state()) and states[1] == random.getstate()


def test_the_table_is_drawn_whole():
    table = lesson.replays()
    texts = [text.get_text() for text in replays_figure(table).axes[0].texts]
    assert texts.count("replayed") == sum(map(len, REPLAYED.values())) and len(texts) == 5 * 8
    for wrong in ({}, {"a": {}}, {"a": {"x": True}, "b": {"y": True}}):
        with pytest.raises(ValueError, match="a table has rows"):
            replays_figure(wrong)


# Exercises


def verdict(exercise, answer):
    return " ".join(str(exercise.judge(answer)).split())


def under(segment, x, unpack):
    places = itertools.count()
    with saved_tensors_hooks(lambda tensor: next(places), unpack):
        return segment(x)


def naive(segment, x, *, hold=False, again=False, order=1, grad=True):
    places, filled = itertools.count(), []

    def unpack(place):
        if hold:
            return place
        if again or not filled:
            filled.clear()
            collect = saved_tensors_hooks(lambda t: filled.append(t.detach()), lambda _: None)
            with torch.set_grad_enabled(grad), collect:
                segment(x)
        return filled[::order][place]

    with saved_tensors_hooks(lambda tensor: tensor if hold else next(places), unpack):
        return segment(x)


@pytest.mark.parametrize("answer", [naive, lambda segment, x: checkpoint(segment, x, use_reentrant=False)])
def test_naive(answer):
    assert verdict(check.naive, answer).startswith(RIGHT)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda segment, x: segment(x), "activations are still alive"),
        (lambda segment, x: naive(segment, x, hold=True), "activations are still alive"),
        (lambda segment, x: naive(segment, x, again=True), "once brings all the tensors back"),
        (lambda segment, x: naive(segment, x, order=-1), "the gradient is not the plain run's"),
        (lambda segment, x: segment(x) if segment(x) is not None else 0, "ran 2 times"),
        (lambda segment, x: 0, "yours returned int"),
        (lambda segment, x: naive(segment, x, grad=False), "run it under torch.enable_grad()"),
        (lambda segment, x: under(segment, x, lambda place: None), "yours returns something else"),
    ],
)
def test_naive_wrong(answer, message):
    told = verdict(check.naive, answer)
    assert told.startswith(WRONG) and message in told, told


def test_an_unpack_that_is_open_is_not_attempted():
    def answer(segment, x):
        def unpack(place): ...

        return under(segment, x, unpack)

    assert verdict(check.naive, answer).startswith(NOT_ATTEMPTED)


def no_context_manager(state):
    yield


@contextmanager
def without_a_yield(state):
    torch.set_rng_state(state)


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
def seeded(state):
    torch.manual_seed(0)
    yield


@contextmanager
def nothing(state):
    yield


@contextmanager
def forked(state):
    with torch.random.fork_rng(devices=[]):
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


@pytest.mark.parametrize(
    "answer", [(capture, replay), [capture, replay], (torch.get_rng_state, forked), (capture, Replay)]
)
def test_torch_stream(answer):
    assert verdict(check.torch_stream, answer).startswith(RIGHT)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ((capture, after_instead_of_before), "before the segment runs again, not after"),
        ((capture, not_put_back), "after the recomputation the stream (torch's default) does not go on"),
        ((capture, not_put_back_if_it_raises), "after a recomputation that raised"),
        ((capture, nothing), "drew another mask"),
        ((lambda: torch.manual_seed(0), seeded), "capturing moved the stream"),
        ((lambda: 0, seeded), "drew another mask"),
        ((lambda: torch.rand(1), nothing), "capturing moved the stream"),
        ((capture, no_context_manager), "keep the line @contextmanager"),
        ((capture, without_a_yield), "has no yield"),
        (capture, "as a pair"),
    ],
)
def test_torch_stream_wrong(answer, message):
    told = verdict(check.torch_stream, answer)
    assert told.startswith(WRONG) and message in told, told


def test_a_stub_under_a_decorator_is_not_attempted():
    def open_(): ...

    @contextmanager
    def stub(state): ...

    assert verdict(check.torch_stream, (open_, stub)).startswith(NOT_ATTEMPTED)
    assert verdict(check.torch_stream, (capture, stub)).startswith(NOT_ATTEMPTED)


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
    return {"torch": [g.get_state() for g in of_torch], "python": random.getstate(), "numpy": np.random.get_state()}


def write_at_once(states, generators):
    for generator, state in zip([torch.default_generator] + generators, states["torch"], strict=True):
        generator.set_state(state)
    random.setstate(states["python"])
    np.random.set_state(states["numpy"])


@pytest.mark.parametrize("answer", [(read, write), (read_at_once, write_at_once)])
def test_every_stream(answer):
    assert verdict(check.every_stream, answer).startswith(RIGHT)


@pytest.mark.parametrize(
    ("answer", "missed"),
    [
        (
            (lambda generators: torch.get_rng_state(), lambda state, generators: torch.set_rng_state(state)),
            "not replayed: a torch.Generator, NumPy's default, Python's random.",
        ),
        ((read, lambda states, generators: write((*states[:3], []), [])), "not replayed: a torch.Generator."),
        ((read, lambda states, generators: lesson.seed_everything(0)), "not replayed: "),
        ((read, lambda states, generators: 0), "not replayed: torch's default"),
    ],
)
def test_every_stream_wrong(answer, missed):
    told = verdict(check.every_stream, answer)
    assert told.startswith(WRONG) and missed in told, told


def compare(saved, recomputed):
    if saved != recomputed:
        raise CheckpointError("they differ")


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


def test_both_ways():
    assert verdict(check.both_ways, compare).startswith(RIGHT)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (one_way, "the recomputation saved one tensor more: your comparison lets it pass"),
        (zipped, "the recomputation saved one tensor fewer: your comparison lets it pass"),
        (counted, "a shape differs: your comparison lets it pass"),
        (lambda saved, recomputed: 1 / 0, "both passes saved the same, and your comparison raised ZeroDivisionError"),
        (lambda saved, recomputed: saved == recomputed, "lets it pass"),
    ],
)
def test_both_ways_wrong(answer, message):
    told = verdict(check.both_ways, answer)
    assert told.startswith(WRONG) and message in told, told


def from_default(self, shape):
    return (torch.rand(shape) >= 0.5) * 2.0


def seeded_from_default(self, shape):
    self.generator.manual_seed(int(torch.randint(2**31, ())))
    return (torch.rand(shape, generator=self.generator) >= 0.5) * 2.0


def seeded_once(self, shape):
    self.generator.manual_seed(0)
    return (torch.rand(shape, generator=self.generator) >= 0.5) * 2.0


@pytest.mark.parametrize("answer", [from_default, seeded_from_default])
def test_repair_generator(answer):
    assert verdict(check.repair_generator, answer).startswith(RIGHT)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (seeded_once, "one and the same mask: that is no dropout. A seed is no repair"),
        (lambda self, shape: torch.ones(shape), "yours is 0 in 0%. Keep the noise"),
        (lambda self, shape: (torch.rand(shape) >= 0.5) * 1.0, "0 in half of the places and 2 in the others"),
        (lesson.Noisy.mask, "a stream that nobody rewinds"),
        (
            lambda self, shape: torch.as_tensor(np.random.rand(*shape) >= 0.5, dtype=torch.float32) * 2,
            "non-reentrant: gradients are off by",
        ),
    ],
)
def test_repair_generator_wrong(answer, message):
    told = verdict(check.repair_generator, answer)
    assert told.startswith(WRONG) and message in told, told


def test_checks_leave_the_streams_alone():
    answers = [(check.repair_generator, from_default), (check.repair_generator, seeded_once)]
    answers += [(check.torch_stream, (capture, not_put_back)), (check.every_stream, (read, write))]
    for exercise, answer in answers:
        before = torch.get_rng_state(), random.getstate()
        exercise.judge(answer)
        assert same_bits(before[0], torch.get_rng_state()) and before[1] == random.getstate()


def gaussian(x, y, w, s, factor=2.0, power=2, lost_has_it=False, replayed_has_it=True):
    least_squares = factor / len(y) * x.T @ (x @ w - y)
    penalty = factor * s**power * x.square().mean(0) * w
    return least_squares + replayed_has_it * penalty, least_squares + lost_has_it * penalty


def in_place(x, y, w, s):
    residual = y.neg_().addmv_(x, w)
    least_squares = 2 / len(y) * x.T @ residual
    return least_squares + 2 * s**2 * x.square_().mean(0) * w, least_squares


@pytest.mark.parametrize(
    "answer",
    [
        gaussian,
        in_place,
        lambda x, y, w, s: [g.tolist() for g in gaussian(x, y, w, s)],
        lambda x, y, w, s: torch.stack(gaussian(x, y, w, s)),
        lambda x, y, w, s: gaussian(x, y, w.requires_grad_(), s),
    ],
)
def test_expected_gradients(answer):
    assert verdict(check.expected_gradients, answer).startswith(RIGHT)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda *a: gaussian(*a, replayed_has_it=False), "replayed, s = 0.5: "),
        (lambda *a: gaussian(*a, replayed_has_it=False), "That is least squares alone: one noise in both factors"),
        (lambda *a: gaussian(*a, lost_has_it=True), "That is the replayed gradient: with two noises nothing is left"),
        (lambda *a: gaussian(*a)[::-1], "That is least squares alone"),
        (lambda *a: gaussian(*a, factor=1.0), "the square's derivative has a factor 2"),
        (lambda *a: gaussian(*a, power=1), "The variance is s², not s."),
        (lambda x, y, w, s: gaussian(x, y, w, s)[0], "replayed"),
        (lambda x, y, w, s: (w[:2], w), "replayed: a gradient has the shape of w, [5]; got [2]"),
        (lambda x, y, w, s: (w * float("nan"), w * float("nan")), "replayed, s = 0.5: nan standard errors"),
        (lambda x, y, w, s: 3, "return two gradients"),
    ],
)
def test_expected_gradients_wrong(answer, message):
    told = verdict(check.expected_gradients, answer)
    assert told.startswith(WRONG) and message in told, told


DIAGNOSIS = {
    "A": ("right", "replayed"),
    "B": ("silent", "replay switched off"),
    "C": ("silent", "a stream that nobody rewinds"),
    "D": ("count", "the draw decides the graph"),
}


def test_diagnose():
    assert verdict(check.diagnose, DIAGNOSIS).startswith(RIGHT)
    assert verdict(check.diagnose, DIAGNOSIS | {"C": (..., ...)}).startswith(NOT_ATTEMPTED)


@pytest.mark.parametrize(
    ("case", "said", "message"),
    [
        (
            "A",
            ("silent", "replayed"),
            "A (nn.Dropout, use_reentrant=False, nothing else): you said 'silent'; run, it is",
        ),
        ("B", ("silent", "a stream that nobody rewinds"), "the symptom is right; the mechanism is not"),
        ("C", ("count", "a stream that nobody rewinds"), "you said 'count'; run, it is 'silent'"),
        ("D", ("silent", "the draw decides the graph"), "you said 'silent'; run, it is 'count'"),
        ("D", ("loud", "the draw decides the graph"), "'loud' is none of 'right', 'silent', 'count'"),
        ("D", "count", "give a pair"),
    ],
)
def test_diagnose_wrong(case, said, message):
    told = verdict(check.diagnose, DIAGNOSIS | {case: said})
    assert told.startswith(WRONG) and message in told, told
