"""An evaluation run twice: what is found, what is never accused, and that all is afterwards as it was."""

import collections
import decimal
import functools
import itertools
import os
import random
import time
import uuid
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from recompute_lab.instruments.determinism import switched
from recompute_lab.instruments.evaluation import run_twice
from recompute_lab.instruments.finding import NOTHING, Finding
from recompute_lab.instruments.nondeterminism import Atomics, StagedRace, atomics_differ
from recompute_lab.instruments.results import compared, entries

X = torch.randn(100, 8, generator=torch.Generator().manual_seed(0))
Y = torch.arange(100) % 4


def made() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, 4))


def scored(net, x, y):
    with torch.no_grad():
        scores = net(x)
    return {"accuracy": (scores.argmax(1) == y).float().mean().item(), "scores": scores.amax(1)}


# --- What is found


class Sampled:
    def __init__(self):
        self.generator = torch.Generator().manual_seed(0)

    def __call__(self, net, x, y):
        picked = torch.randperm(len(x), generator=self.generator)[:50]
        return scored(net, x[picked], y[picked])


class NumPySampled(Sampled):
    def __init__(self):
        self.stream = np.random.default_rng(0)

    def __call__(self, net, x, y):
        picked = torch.from_numpy(self.stream.permutation(len(x))[:50])
        return scored(net, x[picked], y[picked])


class Averaged(nn.Module):
    """Keeps a running mean, and reads it."""

    def __init__(self):
        super().__init__()
        self.net, self.calls = made().eval(), 0
        self.register_buffer("mean", torch.zeros(8))

    def forward(self, x):
        self.mean = torch.lerp(self.mean, x.mean(0), 0.1)
        self.calls += 1
        return self.net(x - self.mean)


def from_a_cache(net, x, y, cache={}):  # noqa: B006
    rows = cache.setdefault("rows", x)
    cache["rows"] = x.half().float()
    return scored(net, rows, y)


def in_an_order_of_its_own(net, x, y):
    waiting = {uuid.uuid4(): row for row in range(len(x))}
    keys = list(set(waiting))[:64]  # the last batch is not full
    rows = [waiting[key] for key in keys]
    return scored(net, x[rows], y[rows])


@pytest.mark.parametrize(
    ("make", "kind", "name"),
    [
        (Sampled, "random stream", "generator generator"),
        (NumPySampled, "random stream", "generator stream"),
        (lambda: from_a_cache, "dict", "cache"),
    ],
)
def test_what_a_run_leaves_for_the_next_is_proven(make, kind, name):
    found = run_twice(make(), made().eval(), X, Y)
    assert not found.agrees and not found.metrics["scores"].agrees
    assert [(r.kind, r.name, r.proven) for r in found.reasons] == [(kind, name, True)]
    assert found.reasons[0].where.startswith("test_evaluation.py:")
    assert name in found.left


def test_the_model_is_named_by_its_argument_and_only_what_is_read_is_a_reason():
    model = Averaged()
    found = run_twice(scored, model, X, Y)
    assert not found.agrees and found.left == ["net.calls", "net.mean"]
    assert [(r.name, r.proven) for r in found.reasons] == [("net.mean", True)]
    assert found.where.startswith("test_evaluation.py:") and "lerp" in found.where
    assert model.calls == 0 and not model.mean.any()


def test_the_order_of_a_set_cannot_be_put_back_and_is_suspected():
    found = run_twice(in_an_order_of_its_own, made().eval(), X, Y)
    assert not found.agrees
    assert {r.kind for r in found.reasons} == {"not to be put back"} and not any(r.proven for r in found.reasons)
    told = [r.name for r in found.reasons]
    assert told[0].startswith("names made anew") and told[1] == "the order of a set"
    assert all(r.where.startswith("test_evaluation.py:") for r in found.reasons)


class Fresh:
    """Hashed by its address, as every object that does not say otherwise."""


def test_a_set_of_fresh_objects_differs_within_one_process():
    kept = []

    def first_of_a_set():
        objects = [Fresh() for _ in range(100)]
        kept.append(objects)  # so that no address comes again
        numbers = {one: i for i, one in enumerate(objects)}
        return [numbers[one] for one in set(objects)]

    found = run_twice(first_of_a_set)
    assert not found.agrees and found.reasons[0].name == "the order of a set"


COUNTED = [0]


class Counting:
    """Its own attributes are empty: what it leaves lies in a global."""

    def __call__(self):
        COUNTED[0] += 1
        return COUNTED[0]


def test_globals_are_found_through_an_objects_call():
    found = run_twice(Counting())
    assert [(r.name, r.proven) for r in found.reasons] == [("COUNTED", True)] and COUNTED == [0]


def test_where_two_things_are_left_only_the_one_that_matters_is_proven():
    seen = []

    def both(net, x, y, sampled=Sampled()):  # noqa: B008
        seen.append(len(x))
        return sampled(net, x, y)

    found = run_twice(both, made().eval(), X, Y)
    assert [r.name for r in found.reasons] == ["generator sampled.generator"]
    assert "seen" in found.left and seen == []


def test_every_reason_says_which_metrics_it_moves():
    sampled = Sampled()

    def several(net, x, y, cache={}):  # noqa: B006
        picked = {uuid.uuid4(): row for row in range(len(x))}
        return {
            "sampled": sampled(net, x, y)["scores"].sum(),
            "cached": from_a_cache(net, x, y, cache)["scores"].sum(),
            "plain": scored(net, x, y)["accuracy"],
            "unordered": [picked[key] for key in set(picked)],
        }

    found = run_twice(several, made().eval(), X, Y)
    assert not found.agrees and found.metrics["plain"].agrees
    moves = {r.name: r.moves for r in found.reasons if r.proven}
    assert moves == {"cache": ("cached",), "generator sampled.generator": ("sampled",)}
    assert {r.moves for r in found.reasons if not r.proven} == {("unordered",)}
    finding = Finding.of(found, "cached", STEPS, after=1.0)
    assert finding.confound.startswith("cache: ")


def test_a_time_is_a_disagreement_and_is_named_as_one():
    def timed(net, x, y):
        start = time.perf_counter()
        return scored(net, x, y) | {"seconds": time.perf_counter() - start}

    found = run_twice(timed, made().eval(), X, Y)
    assert not found.agrees and [m.name for m in found.differing] == ["seconds"]
    assert [r.kind for r in found.reasons] == ["time"] and "leave it out" in str(found)
    alone = compared({"ms_ssim": 0.5, "time_steps": 1}, {"ms_ssim": 0.6, "time_steps": 2})
    assert not any(metric.is_time for metric in alone)


def test_every_run_is_compared_with_the_first():
    calls = itertools.count(1)
    found = run_twice(lambda: next(calls) >= 4, times=6)
    assert not found.agrees and found.run == 4
    assert run_twice(lambda state=[0]: state.append(1) or len(state) >= 7, times=5).agrees  # noqa: B006


# --- Where


def test_the_first_sample_is_that_of_the_result_or_of_the_models_rows():
    class Late(nn.Module):
        calls = 0

        def forward(self, x):
            self.calls += 1
            return x + (self.calls > 12) * (torch.arange(len(x)) == 3)[:, None]  # from the second run's third batch on

    def in_batches(model, x):
        return {"mean": torch.cat([model(rows) for rows in x.split(10)]).mean()}

    found = run_twice(in_batches, Late(), X)
    assert found.first_sample == 23 and [m.name for m in found.differing] == ["mean"]
    assert run_twice(in_batches, Late(), X, samples=[f"image {i}" for i in range(100)]).first_sample == "image 23"

    def per_sample(model, x):
        return torch.cat([model(rows) for rows in x.split(10)])[:, 0].tolist()

    assert run_twice(per_sample, Late(), X).first_sample == 23
    assert run_twice(per_sample, Late(), X, samples=40).first_sample is None, "100 values are not one for each of 40"


def test_samples_that_the_model_has_seen_twice_are_counted_once():
    class Late(nn.Module):
        calls = 0

        def forward(self, x):
            self.calls += 1
            return x + (self.calls == 4) * (torch.arange(len(x)) == 7)[:, None]

    def twice(model, x):
        model(x)
        return model(x).mean()

    assert run_twice(twice, Late(), X).first_sample == 7


def test_a_table_of_classes_is_no_table_of_samples():
    calls = itertools.count()
    found = run_twice(lambda x: {"per class": [0.5, 0.5, float(next(calls) > 0)]}, X)
    assert not found.agrees and found.first_sample is None


def test_the_operator_is_told_from_what_it_was_given():
    class Drawn:
        def __init__(self):
            self.generator = torch.Generator().manual_seed(0)

        def __call__(self, x):
            return (x + torch.rand(8, generator=self.generator)).mean()

    found = run_twice(Drawn(), X)
    assert found.parting.name == "rand" and found.parting.itself

    def added(x, state=[0]):  # noqa: B006
        state.append(0)
        return (x + len(state)).mean()

    found = run_twice(added, X)
    assert found.parting.name == "add" and not found.parting.other


def test_another_branch_is_told_as_another_operator():
    def branched(x, state=[]):  # noqa: B006
        state.append(0)
        return x.sin().mean() if len(state) % 2 else x.cos().mean()

    found = run_twice(branched, X)
    assert found.parting.name == "sin" and found.parting.other.startswith("cos, test_evaluation.py:")


def test_where_no_operator_differs_none_is_named():
    calls = itertools.count()
    found = run_twice(lambda x: x.mean().item() + next(calls), X)
    assert not found.agrees and found.where == "" and found.parting is None


# --- With and without the switch


def test_atomics_vanish_under_the_switch_and_are_told_apart(two_threads):
    if not atomics_differ():
        pytest.skip("additions do not race here: one thread is all that torch has")
    noise, x, found = Atomics(), torch.randn(100_000), []
    while len(found) < 10 and all(one.without_switch.agrees for one in found):  # a busy machine may take turns
        found.append(run_twice(lambda: noise(x), times=20))
        assert found[-1].agrees and found[-1].reasons == []
    assert not found[-1].without_switch.agrees and found[-1].without_switch.differing[0].by_rounding
    assert "additions in no fixed order" in str(found[-1]) and "no more than rounding" in str(found[-1])


def test_with_one_thread_nothing_races_and_it_is_said():
    noise, x = Atomics(), torch.randn(4096)
    found = run_twice(lambda: noise(x), times=10)
    assert found.agrees and found.without_switch.agrees and "one thread: no additions race" in str(found)


def test_a_staged_race_vanishes_under_the_switch_and_a_branch_on_it_is_more_than_rounding():
    race = StagedRace({1: -4, 2: +4})
    found = run_twice(lambda x: (race(x) > 1).float().mean(), torch.ones(10))
    assert found.agrees and found.without_switch.metrics["result"].first == 0.0
    assert found.without_switch.metrics["result"].second == 1.0
    assert "more than rounding: result" in str(found)


def test_without_the_switch_no_reason_is_given():
    found = run_twice(Sampled(), made().eval(), X, Y, deterministic=False)
    assert not found.agrees and found.reasons == [] and found.without_switch is None
    assert "without deterministic algorithms" in str(found)


# --- What is never accused


@dataclass
class Report:
    accuracy: float
    scores: torch.Tensor


def _loader(**more):
    return DataLoader(TensorDataset(X, Y), batch_size=32, shuffle=True, drop_last=True, **more)


def _over(net, batches):
    with torch.no_grad():
        return {"right": sum(int((net(x).argmax(1) == y).sum()) for x, y in batches)}


def _turning(state=[0]):  # noqa: B006
    state.append(0)
    items = [("accuracy", 0.5), ("loss", float("nan")), ("worst", -0.0)]
    return dict(items[::-1] if len(state) % 2 else items)


class Logged:
    """Leaves much behind, and reads none of it."""

    def __init__(self):
        self.history, self.best, self.spare = [], 0.0, torch.Generator()

    def __call__(self, net, x, y):
        torch.rand(1, generator=self.spare)
        result = scored(net, x, y)
        self.history.append(result["accuracy"])
        self.best = max(self.best, result["accuracy"])
        return result


class Accumulated:
    """One tensor, emptied and filled again, and returned as it is."""

    def __init__(self):
        self.counts = torch.zeros(4)

    def __call__(self, net, x, y):
        self.counts.zero_()
        return self.counts.index_add_(0, y, torch.ones(len(y)))


AGREEING = {
    "plain": (scored, lambda: (made().eval(), X, Y)),
    "dropout left on": (scored, lambda: (made(), X, Y)),
    "every global stream": (lambda: (random.random(), np.random.rand(3), torch.rand(3)), lambda: ()),
    "shuffled by the global stream": (_over, lambda: (made().eval(), _loader())),
    "keys in another order": (_turning, lambda: ()),
    "much left behind": (Logged(), lambda: (made().eval(), X, Y)),
    "a tensor used again": (Accumulated(), lambda: (made().eval(), X, Y)),
    "a dataclass": (lambda net: Report(**scored(net, X, Y)), lambda: (made().eval(),)),
    "nested": (lambda: {"a": [{"b": (1, "x")}, {2, 1}], "c": collections.Counter("aab"), "d": None}, lambda: ()),
    "a set, sorted": (lambda: sorted({str(i) for i in range(50)}), lambda: ()),
    "made in NumPy": (lambda x: {"mean": x.numpy().mean(), "kinds": np.array(["a", "b"])}, lambda: (X,)),
    "in inference mode": (torch.inference_mode()(lambda net, x: net(x)), lambda: (made().eval(), X)),
    "gradients too": (lambda net: torch.autograd.grad(net(X).sum(), net[0].weight)[0], lambda: (made().eval(),)),
}


@pytest.mark.parametrize("name", AGREEING)
def test_what_agrees_is_never_accused(name):
    evaluation, arguments = AGREEING[name]
    for _ in range(20):
        found = run_twice(evaluation, *arguments())
        assert found.agrees and found.reasons == [] and found.where == "" and found.first_sample is None, str(found)
        assert found.without_switch.agrees
    assert run_twice(evaluation, *arguments(), times=20).agrees


def test_what_was_left_behind_is_told_also_of_what_agrees():
    found = run_twice(Logged(), made().eval(), X, Y)
    assert found.agrees and found.left == ["best", "generator spare", "history"]
    assert "left behind, and put back: best, generator spare, history" in str(found)


# --- All is as it was


def _flags() -> tuple:
    return (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        torch.utils.deterministic.fill_uninitialized_memory,
        torch.backends.cudnn.benchmark,
        torch.backends.cudnn.deterministic,
        torch.is_grad_enabled(),
        torch.get_default_dtype(),
        dict(os.environ),
        torch.get_rng_state().tolist(),
        random.getstate(),
        str(np.random.get_state()),
    )


def _meddling(error: BaseException | None, calls: list):
    calls.append(0)
    torch.use_deterministic_algorithms(False)
    torch.utils.deterministic.fill_uninitialized_memory = False
    torch.backends.cudnn.benchmark = True
    torch.set_grad_enabled(False)
    torch.set_default_dtype(torch.float64)
    os.environ["AN_EVALUATIONS_OWN"] = "1"
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":0:0"
    torch.manual_seed(len(calls))
    random.seed(1)
    np.random.seed(1)
    if error is not None and len(calls) == 2:
        raise error
    return torch.rand(3)


@pytest.fixture(params=[(False, False), (True, True), (True, False)])
def switch(request):
    enabled, warn_only = request.param
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(enabled, warn_only=warn_only)
    yield
    torch.use_deterministic_algorithms(before[0], warn_only=before[1])


@pytest.mark.parametrize("error", [None, ValueError("in the second run"), KeyboardInterrupt(), SystemExit(3)])
@pytest.mark.parametrize("variable", [None, ":16:8", "mine"])
def test_flags_streams_and_variables_are_as_before(error, variable, switch, monkeypatch):
    if variable is None:
        monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    else:
        monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", variable)
    before, calls = _flags(), []
    if error is None:
        assert not run_twice(_meddling, error, calls).agrees
    else:
        with pytest.raises(type(error)):
            run_twice(_meddling, error, calls)
    assert _flags() == before and calls == []


def test_inside_the_switch_is_on_and_the_products_of_cublas_are_allowed(monkeypatch):
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)

    def look():
        return torch.are_deterministic_algorithms_enabled(), os.environ.get("CUBLAS_WORKSPACE_CONFIG", "not set")

    found = run_twice(look)
    assert [m.first for m in found.metrics.values()] == [True, ":4096:8"]
    assert [m.first for m in found.without_switch.metrics.values()] == [False, "not set"]
    with pytest.raises(KeyboardInterrupt), switched(True):
        raise KeyboardInterrupt
    assert not torch.are_deterministic_algorithms_enabled() and "CUBLAS_WORKSPACE_CONFIG" not in os.environ


def test_a_gradient_that_is_added_to_is_a_reason():
    def summed(net, x):
        net(x).sum().backward()
        return net[0].bias.grad.sum()

    net = nn.Sequential(nn.Linear(8, 4))
    for grad in (None, torch.ones(4)):
        net[0].bias.grad = grad
        found = run_twice(summed, net, X)
        assert [(r.name, r.proven) for r in found.reasons] == [("net.0.bias.grad", True)]
        assert net[0].bias.grad is grad and (grad is None or torch.equal(grad, torch.ones(4)))


def test_nothing_of_the_users_is_changed():
    class Harness:
        def __init__(self):
            self.seen, self.generator = {"n": 0}, torch.Generator().manual_seed(3)

        def evaluate(self, net, x, extra):
            self.seen["n"] += 1
            extra.append(1)
            x += torch.rand(1, generator=self.generator)
            with torch.no_grad():
                net[0].weight.mul_(1.5)
            net.train()
            net(x).sum().backward()
            return net[0].weight.grad.sum()

    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 4), nn.BatchNorm1d(4)).eval()
    net[0].weight.grad = torch.ones(4, 8)
    grad, x, extra, harness = net[0].weight.grad, X.clone(), [], Harness()
    state = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    position = harness.generator.get_state()
    found = run_twice(harness.evaluate, net, x, extra)
    assert not found.agrees and set(found.left) > {"extra", "x"}
    assert all(torch.equal(tensor, state[name]) for name, tensor in net.state_dict().items())
    assert net[0].weight.grad is grad and torch.equal(grad, torch.ones(4, 8)) and net[1].weight.grad is None
    assert not net.training and not net._forward_hooks
    assert torch.equal(x, X) and extra == [] and harness.seen == {"n": 0}
    assert torch.equal(harness.generator.get_state(), position)


# --- What is said


def test_what_is_printed_is_short():
    worst = {f"metric_{i}": i for i in range(9)}
    calls = itertools.count()
    spare = [torch.Generator() for _ in range(9)]

    def evaluation(x):
        for generator in spare:
            torch.rand(1, generator=generator)
        rows = torch.rand(100, generator=spare[0])
        return {n: rows.sum().item() + i for n, i in worst.items()} | {"same": 1, "rows": rows, "o": object()}

    told = str(run_twice(evaluation, X)).splitlines()
    assert len(told) <= 15 and told[0].startswith("DISAGREES under deterministic algorithms: run 2 of 2")
    assert "equal in every bit: same" in "\n".join(told) and "not compared: o (object)" in "\n".join(told)
    assert str(run_twice(lambda: next(calls) * 0)).startswith("AGREES: 2 runs")


@pytest.mark.parametrize(
    ("first", "second", "told"),
    [
        (0.0, -0.0, "0.0 → -0.0, which == takes for equal"),
        (0.5, 0.5 + 2**-53, "0.5 → 0.5000000000000001"),
        (1, 1.0, "1 (int) → 1 (float)"),
        (3, 4, "3 → 4"),
        ("a", "b", "'a' → 'b'"),
        ([1, 2, 3], [1, 5, 6], "2 of 3 differ, first number 1: 2 → 5"),
        ([1, 2, 3], [1, 2], "[3] list → [2] list"),
        (torch.zeros(2), torch.zeros(3), "[2] float32 → [3] float32"),
        (torch.zeros(2), torch.tensor([0.0, -0.0]), "1 of 2 differ, first number 1: 0.0 → -0.0, which == takes"),
        (np.zeros(2), np.zeros(2, dtype=np.float32), "[2] float64 → [2] float32"),
        ({"a": 1}, {"b": 1}, "only the first run returns it"),
    ],
)
def test_how_two_results_differ(first, second, told):
    metrics = compared(entries(first)[0], entries(second)[0])
    assert not metrics[0].agrees and told in str(metrics[0])


@pytest.mark.parametrize(
    "value",
    [math_nan := float("nan"), torch.tensor([math_nan, -0.0]), 1 + 2j, True, None, "x", np.float32(1), {"a": [1, 2]}],
    ids=str,
)
def test_a_value_equals_itself(value):
    both = [entries({"it": value, "n": 1})[0] for _ in range(2)]
    assert all(metric.agrees for metric in compared(*both))


@pytest.mark.parametrize(
    "value",
    [
        lambda: decimal.Decimal("NaN"),
        lambda: np.longdouble("nan"),
        lambda: np.array(["nan", 1], dtype=np.longdouble),
        lambda: np.array([(1, np.nan)], dtype=[("n", "i4"), ("x", "f4")]),
        lambda: {float("nan"), 1.0},
        lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
    ],
)
def test_what_is_made_anew_equals_itself_and_its_neighbour_does_not(value):
    assert run_twice(value).agrees
    for one, other in (({0.0}, {-0.0}), ({1}, {1.0}), (decimal.Decimal(1), decimal.Decimal("NaN"))):
        assert not compared(entries(one)[0], entries(other)[0])[0].agrees


@pytest.mark.filterwarnings("ignore:.*jit.script")
def test_a_scripted_model_is_watched_and_put_back():
    net = torch.jit.script(torch.nn.Sequential(torch.nn.Linear(4, 2), torch.nn.BatchNorm1d(2)))
    found = run_twice(lambda net: (net(torch.arange(12.0).view(3, 4)), net.state_dict()["1.running_mean"])[1], net)
    assert not found.agrees and found.reasons[0].proven and "running_mean" in found.reasons[0].name
    assert not net.state_dict()["1.running_mean"].any()


def test_the_switchs_own_variable_is_nothing_that_was_left_behind():
    assert run_twice(lambda: float("PATH" in os.environ)).left == []


def test_a_clock_is_not_to_be_sorted():
    found = run_twice(lambda: {"t": time.perf_counter()})
    assert "a clock" in found.reasons[0].name and found.reasons[0].repair == "leave it out of what is compared"


async def _awaited():
    return 1.0


def _put():
    return torch.zeros(3).put_(torch.tensor([1]), torch.tensor([2.0]))


@pytest.mark.parametrize(
    ("arguments", "kind", "told"),
    [
        ((0.93,), TypeError, "got float, perhaps its result: run_twice(evaluate, model)"),
        ((lambda: None,), TypeError, "this one returned None"),
        ((lambda: {},), TypeError, "returned an empty dict"),
        ((lambda: {"model": object()},), TypeError, "returned a value of type dict"),
        ((lambda: (i for i in range(3)),), TypeError, "returned a generator, which computes when it is read"),
        ((lambda: {"losses": map(float, "12")},), TypeError, "losses returned a map"),
        ((sum, iter([1, 2])), TypeError, "args[0] is an iterator (list_iterator), which the first run uses up"),
        ((lambda x: 1,), TypeError, "cannot be called with these arguments: missing a required argument: 'x'"),
        ((_awaited,), TypeError, "returned a coroutine, which nobody has awaited"),
        ((_put,), RuntimeError, "torch has no deterministic implementation of put_, so the check cannot be made"),
    ],
)
def test_bad_input_gets_a_sentence(arguments, kind, told):
    with pytest.raises(kind) as raised:
        run_twice(*arguments)
    assert told in str(raised.value) and "\n" not in str(raised.value)
    assert not torch.are_deterministic_algorithms_enabled()


def test_bad_numbers_and_names_of_our_own_get_a_sentence():
    for times in (1, 0, True, 2.5):
        with pytest.raises(ValueError, match="one run agrees with itself"):
            run_twice(lambda: 1, times=times)
    for own, kind, told in (
        ({"model": "resnet"}, TypeError, "model is the module to watch; got str"),
        ({"deterministic": "no"}, TypeError, "deterministic is True or False; got 'no'"),
        ({"samples": 2.5}, TypeError, "samples is how many there are"),
        ({"samples": -1}, ValueError, "samples is how many there are"),
    ):
        with pytest.raises(kind, match=told):
            run_twice(lambda: 1, **own)
    with pytest.raises(TypeError, match=r"model is run_twice's own; give functools.partial\(evaluation, model=...\)"):
        run_twice(lambda x, model: 1, X, model=made())
    assert run_twice(functools.partial(lambda x, model: model(x).sum(), model=made()), X).agrees
    assert run_twice(_put, deterministic=False).agrees


# --- Findings


STEPS = ["python evaluate.py --seed 0, twice, on the test set of 1,797 digits"]


def test_a_finding_renders_every_part():
    finding = Finding("accuracy", "a generator that nobody seeds", STEPS, [0.9344, 0.9359], 0.9355, where="eval.py:12")
    told = finding.to_markdown()
    assert told == finding._repr_markdown_() == str(finding)
    for part in ("### accuracy", "a generator that nobody seeds (eval.py:12)", "0.9344, 0.9359", "0.9355", "1. python"):
        assert part in told
    assert finding.found


def test_nothing_found_is_a_finding():
    finding = Finding.nothing("loss", STEPS, [0.25, 0.25, 0.25])
    assert not finding.found and f"### loss: {NOTHING}" in str(finding) and "in 3 runs: 0.25" in str(finding)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"metric": " "}, "metric: the name of the number"),
        ({"confound": "..."}, "confound: what moved the number"),
        ({"steps": []}, "steps: how somebody else sees it again"),
        ({"steps": ["run it", ...]}, "steps: each line says something"),
        ({"before": [0.5]}, "before: give what two runs or more gave"),
        ({"before": [0.5, 0.5]}, "Finding.nothing"),
        ({"after": None}, "after: the numbers that the runs gave"),
        ({"after": " "}, "after: the numbers that the runs gave"),
        ({"after": [0.5, 0.6]}, "so the confound is not gone"),
    ],
)
def test_what_is_missing_in_a_finding_is_said(change, told):
    whole = {"metric": "m", "confound": "a set", "steps": STEPS, "before": [0.5, 0.6], "after": 0.5}
    with pytest.raises(ValueError) as raised:
        Finding(**(whole | change))
    assert told in str(raised.value)
    with pytest.raises(ValueError, match="gave the same in every bit"):
        Finding.nothing("m", STEPS, [0.0, -0.0])


def test_a_finding_is_filled_from_an_agreement():
    net, sampled = made().eval(), Sampled()
    found = run_twice(lambda: {"sum": sampled(net, X, Y)["scores"].sum()})
    finding = Finding.of(found, "sum", "python evaluate.py", after=scored(net, X, Y)["scores"].sum())
    assert finding.before == (found.metrics["sum"].first, found.metrics["sum"].second)
    assert "generator sampled.generator" in finding.confound and finding.where == found.reasons[0].where
    assert finding.steps[0] == "python evaluate.py" and "compare every bit" in finding.steps[-1]
    with pytest.raises(ValueError, match="after: the agreement does not know it"):
        Finding.of(found, "sum", STEPS)
    with pytest.raises(KeyError, match="the result has sum, and no 'loss'"):
        Finding.of(found, "loss")
    assert not Finding.of(run_twice(scored, net, X, Y), "accuracy").found


def test_a_finding_takes_no_reason_that_was_not_found_and_says_what_is_suspected():
    calls = itertools.count()
    found = run_twice(lambda: next(calls))
    with pytest.raises(ValueError, match="confound: the check has not found it"):
        Finding.of(found, "result", STEPS, after=0)
    assert Finding.of(found, "result", STEPS, "a counter", after=0).confound == "a counter"
    suspected = Finding.of(run_twice(lambda: {"t": time.perf_counter()}), "t", STEPS, after=0.0)
    assert suspected.confound.startswith("suspected: a clock")
    with pytest.raises(TypeError, match="give the Agreement that run_twice returned; got dict"):
        Finding.of({"result": 1}, "result", STEPS)
    assert Finding.of(run_twice(lambda: 1.0), "result", STEPS, notes=["by hand"]).notes == ("by hand",)


def test_a_finding_shows_as_markdown_whatever_is_in_it():
    told = str(Finding("a|`b<c>`", "<lambda> draws,\ntwice", STEPS, np.array([0.5, 0.25]), after="x\ny"))
    assert told.splitlines()[0] == "### a|`b<c>`" and "**Confound**: \\<lambda> draws, twice" in told
    assert "**With it**: 0.5, 0.25" in told and "**Without it**: x y" in told
