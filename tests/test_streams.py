"""Random streams can be read and rewound; who replays which, measured."""

import random
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from torch.autograd.graph import saved_tensors_hooks

from recompute_lab import NON_REENTRANT, REENTRANT, divergence, same_bits
from recompute_lab.instruments.streams import Stream, generator_stream, process_streams, rewound, torch_streams
from recompute_lab.lessons import streams as lesson
from recompute_lab.lessons.exercise import NOT_ATTEMPTED
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


def test_an_unpack_that_is_open_is_not_attempted():
    def answer(segment, x):
        def unpack(place): ...

        with saved_tensors_hooks(lambda tensor: 0, unpack):
            return segment(x)

    assert check.naive.judge(answer).status == NOT_ATTEMPTED


def test_a_stub_under_a_decorator_is_not_attempted():
    def open_(): ...

    @contextmanager
    def stub(state): ...

    for capture in (open_, torch.get_rng_state):
        assert check.torch_stream.judge((capture, stub)).status == NOT_ATTEMPTED
