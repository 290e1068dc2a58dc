"""The ledger sees what autograd saves, and nothing else changes because it looks."""

import gc
import inspect
import queue
import random
import sys
import weakref

import pytest
import torch
from torch import nn
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks

from recompute_lab.instruments import ledger as ledger_module
from recompute_lab.instruments.checkpointing import NO_EARLY_STOP, NON_REENTRANT, PLAIN, REENTRANT, STRATEGIES
from recompute_lab.instruments.ledger import Ledger, Recorder, SavedTensor, _edit_script, align, record, unmatched
from recompute_lab.specimens.trunk import Trunk


def leaf(*shape):
    return torch.randn(*shape, requires_grad=True)


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, gradient):
        return 2 * ctx.saved_tensors[0] * gradient


class Lstm(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(8, 8, 2, batch_first=True, bidirectional=True)

    def forward(self, x):
        return self.lstm(x)[0]


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, dropout=0.1, batch_first=True)

    def forward(self, x):
        return self.attention(x, x, x)


SEGMENTS = {
    "attention": (Attention, (3, 4, 8)),
    "lstm": (Lstm, (3, 4, 8)),
    "convolution": (lambda: nn.Sequential(nn.Conv1d(4, 8, 3), nn.ReLU(), nn.MaxPool1d(2)), (3, 4, 8)),
    "batch norm": (lambda: nn.Sequential(nn.BatchNorm1d(4), nn.Softmax(-1)), (3, 4, 8)),
    "dropout": (lambda: nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.GELU()), (3, 4, 8)),
    "encoder layer": (lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), (3, 4, 8)),
    "custom function": (lambda: lambda x: Square.apply(x).sin(), (3, 4)),
    "in place": (lambda: lambda x: x.mul_(2).exp_().sin(), (3, 4)),
    "trunk": (lambda: Trunk(blocks=2), (2, 4, 32)),
}


def first(output):
    return output[0] if isinstance(output, tuple) else output


def name_of(strategy):
    return getattr(strategy, "name", None)


def bare_count(segment, *args):
    """What plain hooks count: the ledger's yardstick."""
    saved = []
    with saved_tensors_hooks(lambda t: saved.append(tuple(t.shape)) or t, lambda t: t):
        segment(*args)
    return saved


@pytest.mark.parametrize("name", SEGMENTS)
def test_it_counts_what_plain_hooks_count(name):
    make, shape = SEGMENTS[name]
    segment, x = make(), leaf(*shape)
    torch.manual_seed(1)
    shapes = bare_count(segment, x.clone())
    ledger = record(segment, x)
    assert [row.shape for row in ledger] == shapes
    assert [row.position for row in ledger] == list(range(1, len(shapes) + 1))
    assert ledger.ended == "returned"


@pytest.mark.parametrize("name", SEGMENTS)
@pytest.mark.parametrize("strategy", STRATEGIES, ids=name_of)
def test_recording_changes_no_output_and_no_gradient(name, strategy):
    make, shape = SEGMENTS[name]
    segment, data = make(), torch.randn(*shape)
    parameters = list(segment.parameters()) if isinstance(segment, nn.Module) else []

    def run(callable_):
        torch.manual_seed(1)
        x = data.clone().requires_grad_()
        output = first(strategy(callable_, x.clone()))
        output.sin().sum().backward()
        grads = [x.grad, *(p.grad for p in parameters)]
        for p in parameters:
            p.grad = None
        return [output, *grads]

    def outcome(callable_):
        try:
            return run(callable_)
        except RuntimeError as error:  # in place on a checkpointed input, say: then the same error either way
            return [type(error), str(error)]

    plain, recorder = outcome(segment), Recorder(segment)
    for a, b in zip(plain, outcome(recorder), strict=True):
        assert torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b
    stopped = strategy in (NON_REENTRANT, NO_EARLY_STOP) and name == "in place"  # before the segment runs again
    assert len(recorder.passes) == (1 if strategy is PLAIN or stopped else 2)


@pytest.mark.parametrize(
    ("strategy", "ends"),
    [(REENTRANT, "returned"), (NON_REENTRANT, "stopped early"), (NO_EARLY_STOP, "returned")],
    ids=name_of,
)
def test_how_each_recomputation_ends(strategy, ends):
    recorder = Recorder(lambda x: x.sin().exp().cos())
    strategy(recorder, leaf(3).clone()).sum().backward()
    forward, again = recorder.passes
    assert len(forward) == (0 if strategy is REENTRANT else 3)
    assert (len(again), forward.ended, again.ended) == (3, "returned", ends)


@pytest.mark.parametrize("strategy", [PLAIN, REENTRANT], ids=name_of)
@pytest.mark.parametrize(
    "spoil",
    [
        lambda x: (lambda y: (y.add_(1), y)[1])(x.exp()),
        lambda x: (lambda c: (lambda y: (c.mul_(2), y)[1])(c * c))(x.clone()),
        lambda x: (lambda b: (lambda y: (b.add_(1), y)[1])(x * b))(torch.ones(3)),
    ],
    ids=["its result", "its input", "a constant"],
)
def test_autograds_check_for_changes_in_place_still_works(spoil, strategy):
    """torch skips this check under hooks; a recorder that hid it would hide wrong gradients."""
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        strategy(Recorder(spoil), leaf(3)).sum().backward()


def test_the_callers_hooks_still_see_every_tensor():
    packed, unpacked = [], []

    def pack(tensor):
        packed.append(tensor.shape)
        return tensor.double()

    def unpack(tensor):
        unpacked.append(tensor.shape)
        return tensor.float()

    recorder, x = Recorder(lambda x: x.sin().exp()), leaf(3)
    with saved_tensors_hooks(pack, unpack):
        recorder(x).sum().backward()
    assert len(packed) == len(unpacked) == len(recorder.passes[0]) == 2
    assert torch.allclose(x.grad, x.sin().exp() * x.cos())
    x.grad = None
    with save_on_cpu():
        recorder(x).sum().backward()
    assert torch.allclose(x.grad, x.sin().exp() * x.cos())
    assert len(recorder.passes[1]) == 2


def test_nested_recorders_see_the_same_rows():
    inner = Recorder(lambda x: Square.apply(x.sin()) * x)
    outer = Recorder(inner)
    x = leaf(3)
    outer(x).sum().backward()
    assert outer.passes[0].rows == inner.passes[0].rows
    assert [row.operator for row in inner.passes[0]] == ["sin", "Square", "mul", "mul"]
    assert x.grad is not None


def test_a_checkpoint_inside_keeps_its_tensors_from_the_ledger():
    assert record(lambda x: NON_REENTRANT(lambda y: y.sin().cos(), x).exp(), leaf(3)).count("exp") == 1
    assert record(lambda x: NON_REENTRANT(lambda y: y.sin().cos(), x).exp(), leaf(3)).count("sin") == 0


def test_double_backward_through_a_recorder():
    x = leaf(3)
    y = Recorder(lambda x: x.sin().exp())(x)
    (g,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    (h,) = torch.autograd.grad(g.sum(), x)
    z = x.sin().exp()
    assert torch.allclose(h, z * x.cos() ** 2 - z * x.sin())


@pytest.mark.parametrize(
    ("segment", "args"),
    [(lambda: 3, ()), (lambda x: x + 1, (torch.ones(2, requires_grad=True),)), (lambda x: x.sin(), (torch.ones(2),))],
    ids=["no tensor", "nothing to save", "nothing requires grad"],
)
def test_nothing_saved_gives_an_empty_ledger(segment, args):
    ledger = record(segment, *args)
    assert (len(ledger), ledger.bytes, ledger.count(), list(ledger)) == (0, 0, 0, [])
    assert str(ledger) == "0 saved tensors, returned"


def test_no_grad_saves_nothing():
    with torch.no_grad():
        assert len(record(lambda x: x.sin(), leaf(2))) == 0


@pytest.mark.parametrize("output", [tuple, lambda y: {"y": y[0]}, lambda y: None], ids=["tuple", "dict", "None"])
def test_any_output_will_do(output):
    assert len(record(lambda x: output([x.sin()]), leaf(2))) == 1


def test_arguments_in_containers_and_keywords():
    ledger = record(lambda pair, *, by: pair["a"] * by[0], {"a": leaf(2)}, by=[leaf(2), 3])
    assert [row.operator for row in ledger] == ["mul", "mul"]


def test_a_builtin_method_is_a_segment():
    w = leaf(2)
    assert len(record(w.mul, leaf(2))) == 2


@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt])
def test_what_the_segment_raises_passes_through(error):
    def segment(x):
        x.sin()
        raise error

    recorder = Recorder(segment)
    with pytest.raises(error):
        recorder(leaf(2))
    assert (recorder.passes[0].ended, len(recorder.passes[0])) == (f"raised {error.__name__}", 1)
    with pytest.raises(error):
        record(segment, leaf(2))
    assert len(bare_count(torch.sin, leaf(2))) == 1  # no hook or mode is left behind


@pytest.mark.parametrize("wrong", [None, 3, torch.ones(2)])
def test_what_cannot_be_called_is_named(wrong):
    with pytest.raises(TypeError, match="callable or an nn.Module; got"):
        record(wrong)
    with pytest.raises(TypeError, match="callable or an nn.Module; got"):
        Recorder(wrong)


def here():
    return inspect.currentframe().f_back.f_lineno


def test_the_line_is_the_segments_own():
    def outer(x):
        def inner(y):
            return y.sin()  # line + 2

        return inner(x)

    line = inspect.getsourcelines(outer)[1]
    row = record(outer, leaf(2))[0]
    assert (row.file, row.line) == (__file__, line + 2)
    assert row.where == f"test_ledger.py:{line + 2}"
    row, line = record(lambda x: x.sin(), leaf(2))[0], here()
    assert (row.file, row.line) == (__file__, line)


def test_where_the_segment_has_no_line_of_its_own_torchs_is_shown():
    rows = record(nn.Sequential(nn.Linear(2, 2), nn.Softmax(-1)), leaf(2, 2))
    assert {row.file.startswith(ledger_module._TORCH) for row in rows} == {True}
    assert rows[0].where.startswith("linear.py:")


def test_a_notebooks_cell_is_called_cell():
    scope = {}
    exec(compile("def segment(x):\n    return x.sin()\n", "/any/ipykernel_17/1234.py", "exec"), scope)
    assert record(scope["segment"], leaf(2))[0].where == "cell:2"


@pytest.mark.parametrize(
    ("segment", "operators"),
    [
        (lambda x: x @ x, ["matmul", "matmul"]),
        (lambda x: torch.softmax(x, -1).exp_(), ["softmax", "exp"]),
        (lambda x: nn.functional.layer_norm(x, (2,)), ["layer_norm"] * 3),
        (lambda x: Square.apply(x), ["Square"]),
        (lambda x: x[torch.tensor([0, 1])], ["getitem"]),
    ],
)
def test_the_operator_is_what_was_written(segment, operators):
    assert [row.operator for row in record(segment, leaf(2, 2))] == operators


def test_bytes_and_counts():
    ledger = record(lambda x: x.sin() * x.double().cos(), leaf(3, 5))
    assert ledger.bytes == 15 * 4 + 15 * 8 + 15 * 4 + 15 * 8
    assert (ledger.count("sin"), ledger.count("cos"), ledger.count("mul"), ledger.count("exp")) == (1, 1, 2, 0)


def test_a_long_ledger_prints_its_head():
    def segment(x):
        for _ in range(30):
            x = x.sin()
        return x

    lines = str(record(segment, leaf(2, 3))).splitlines()
    assert (lines[0], lines[-1], len(lines)) == ("30 saved tensors, returned", "   ... 10 more rows", 22)
    assert lines[1].split()[:4] == ["1", "sin", "2x3", "float32"]


def python_calls(function):
    """How many Python functions ran: a measure of work that no busy machine can change."""
    calls = 0

    def count(frame, event, arg):
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        function()
    finally:
        sys.setprofile(None)
    return calls


def chain(length):
    def segment(x):
        for _ in range(length):
            x = x.sin()
        return x

    return segment


def test_recording_takes_work_linear_in_the_rows():
    x = leaf(1)
    record(chain(10), x)  # fills torch's own caches
    small, large = (python_calls(lambda n=n: record(chain(n), x)) for n in (200, 2_000))
    assert small <= 40 * 200 + 500
    assert large <= 10 * small


def test_a_hundred_thousand_saved_tensors():
    ledger = record(chain(100_000), leaf(1))
    assert (len(ledger), ledger.count("sin"), ledger[-1].position) == (100_000, 100_000, 100_000)


# Aligning


def row(position, operator):
    return SavedTensor(position, operator, (2, 3), torch.float32, "cpu", "a.py", 1)


def ledger_of(operators):
    return Ledger([row(i, operator) for i, operator in enumerate(operators, 1)])


def sides(pairs):
    return [a for a, _ in pairs if a is not None], [b for _, b in pairs if b is not None]


def odd_ones(a, b, **options):
    pairs = align(ledger_of(a), ledger_of(b), **options)
    assert sides(pairs) == (ledger_of(a).rows, ledger_of(b).rows)
    assert all(x.key == y.key for x, y in pairs if x and y)
    odd = unmatched(pairs)
    return "".join(x.operator for x, _ in odd if x), "".join(y.operator for _, y in odd if y)


@pytest.mark.parametrize(
    ("a", "b", "only_a", "only_b"),
    [
        ("", "", "", ""),
        ("abc", "abc", "", ""),
        ("", "abc", "", "abc"),
        ("abc", "", "abc", ""),
        ("abc", "abxc", "", "x"),
        ("abxc", "abc", "x", ""),
        ("xabc", "abcy", "x", "y"),
        ("aXbcYd", "abZcd", "XY", "Z"),
        ("abc", "xyz", "abc", "xyz"),
        ("aaaa", "aa", "aa", ""),
    ],
)
def test_alignment_finds_the_odd_ones(a, b, only_a, only_b):
    assert odd_ones(a, b) == (only_a, only_b)


def longest_common(a, b):
    best = [[0] * (len(b) + 1) for _ in range(len(a) + 1)]
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            best[i + 1][j + 1] = best[i][j] + 1 if x == y else max(best[i][j + 1], best[i + 1][j])
    return best[-1][-1]


@pytest.mark.parametrize("seed", range(10))
def test_alignment_is_shortest_and_loses_no_row(seed):
    for trial in range(60):
        check_alignment(random.Random(1_000 * seed + trial))


def check_alignment(rng):
    letters = "abcdefgh"[: rng.randint(1, 8)]
    a = rng.choices(letters, k=rng.randint(0, 25))
    b = list(a) if rng.random() < 0.6 else rng.choices(letters, k=rng.randint(0, 25))
    for _ in range(rng.randint(0, 5)):
        place = rng.randint(0, len(b))
        b[place : place + rng.randint(0, 2)] = rng.choices(letters, k=rng.randint(0, 2))
    only_a, only_b = odd_ones(a, b)
    assert len(only_a) + len(only_b) == len(a) + len(b) - 2 * longest_common(a, b)


def test_past_most_only_common_ends_are_paired():
    a, b = "s" + "a" * 30 + "t", "s" + "b" * 30 + "t"
    assert odd_ones(a, b, most=60) == odd_ones(a, b, most=59) == ("a" * 30, "b" * 30)
    mixed = "s" + "ab" * 10 + "t"
    assert odd_ones("s" + "ba" * 10 + "t", mixed, most=2) == ("b", "b")
    assert odd_ones("s" + "ba" * 10 + "t", mixed, most=1) == ("ba" * 10, "ab" * 10)


def test_two_different_programs_of_a_hundred_thousand_rows():
    a, b = [row(i, f"a{i}") for i in range(100_000)], [row(i, f"b{i}") for i in range(100_000)]
    pairs = align(a, b, most=200)
    assert len(unmatched(pairs)) == 200_000
    assert sides(pairs) == (a, b)


def edited(length):
    rng = random.Random(0)
    a = [rng.choice("abcdef") for _ in range(length)]
    b = list(a)
    for k in range(16):
        place = (2 * k + 1) * length // 33
        b[place : place + k % 2] = [] if k % 2 else ["new"]
    return a, b


def test_sixteen_differences_in_a_hundred_thousand_rows():
    a, b = edited(100_000)
    only_a, only_b = odd_ones(a, b)
    assert (len(only_a), only_b) == (8, "new" * 8)


class Counted(list):
    looks = 0

    def __getitem__(self, index):
        Counted.looks += 1
        return super().__getitem__(index)


def test_alignment_takes_work_linear_in_the_rows():
    looks = []
    for length in (1_000, 10_000, 100_000):
        a, b = edited(length)
        Counted.looks = 0
        assert sum(x != y for x, y in _edit_script(Counted(a), Counted(b), 100)) == 16
        looks.append(Counted.looks)
        assert Counted.looks <= 2 * 17 * (length + 16) + 1_000
    assert looks[2] <= 12 * looks[1]


def test_a_generator_has_not_run_and_is_told_so():
    def segment(x):
        yield x.exp()

    with pytest.raises(TypeError, match="has not run yet"):
        record(segment, torch.ones(2, requires_grad=True))


ALIVE = queue.SimpleQueue()  # not searched: what `record` does to a list of the segment's, it undoes


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("operator", [torch.exp, torch.tanh, torch.sin, lambda x: x.softmax(-1)])
def test_what_was_recorded_is_freed(operator, backward):
    def segment(x):
        result = operator(x)
        ALIVE.put(weakref.ref(result.untyped_storage()))
        return result * 2

    output = Recorder(segment)(leaf(4, 8))
    if backward:
        output.sum().backward()
    del output
    record(segment, leaf(4, 8))
    gc.collect()
    assert [ALIVE.get_nowait()() for _ in range(2)] == [None, None]
