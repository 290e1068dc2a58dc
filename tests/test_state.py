"""Whatever an instrument does with a segment, the caller finds everything as it was: bit for bit."""

import functools
import random
import threading
from collections import Counter, OrderedDict, defaultdict, deque
from types import SimpleNamespace

import numpy
import pytest
import torch
from torch import nn

from recompute_lab.instruments.checkpointing import NON_REENTRANT, REENTRANT, STRATEGIES, passes
from recompute_lab.instruments.gradients import divergence
from recompute_lab.instruments.isolation import isolated
from recompute_lab.instruments.ledger import record
from recompute_lab.instruments.memory import footprint
from recompute_lab.instruments.state import Snapshot, same_bits


class Slots:
    __slots__ = ("a",)

    def __getattr__(self, name):
        raise RuntimeError("do not ask")


class Touchy:
    """An object that is hard to look at."""

    def __init__(self):
        self.me = self
        self.count = 0

    @property
    def trap(self):
        raise RuntimeError("do not ask")

    def __eq__(self, other):
        raise RuntimeError("do not compare")

    __hash__ = None

    def __repr__(self):
        raise RuntimeError("do not print")


class Messy(nn.Module):
    """Changes every kind of state that it can reach; raises `error` in the pass `fail_at`."""

    def __init__(self, fail_at=None, error=ArithmeticError):
        super().__init__()
        self.fail_at, self.error = fail_at, error
        self.linear = nn.Linear(4, 4)
        self.twice = self.linear  # a shared module
        self.tied = self.linear.weight
        self.frozen = nn.Parameter(torch.randn(4), requires_grad=False)
        self.norm = nn.BatchNorm1d(4)
        self.register_buffer("written", torch.zeros(4))
        self.register_buffer("rebound", torch.zeros(4))
        self.register_buffer("cache", torch.zeros(3, 4))
        self.register_buffer("resized", torch.arange(4.0))
        self.register_buffer("view", torch.zeros(8)[::2])
        self.plain_tensor = torch.zeros(4)
        self.count, self.text, self.nothing, self.ratio = 0, "a", None, float("nan")
        self.log, self.memo, self.names, self.recent = [], {"old": torch.ones(2)}, {"a"}, deque([1, 2], maxlen=2)
        self.lru = OrderedDict(a=1, b=1)
        self.counter, self.groups = Counter("aab"), defaultdict(list, a=[1])
        self.nested = ({"deep": [[1], torch.zeros(2)]},)
        self.cyclic = [1]
        self.cyclic.append(self.cyclic)
        self.namespace, self.touchy, self.slots = SimpleNamespace(n=0), Touchy(), Slots()
        self.unpicklable = lambda: None
        self.generators = [
            torch.Generator().manual_seed(1), numpy.random.default_rng(1), numpy.random.RandomState(1), random.Random(1)
        ]  # fmt: skip
        self.passes = 0

    def forward(self, x):
        self.passes += 1
        y = self.norm(self.linear(x)).tanh()
        self.written += y.detach().sum(0)
        self.rebound = self.rebound + 1
        self.cache[self.passes % 3] = y[0]  # draws the buffer into the graph
        self.view.mul_(2).add_(1)
        self.resized.resize_(9).fill_(7)
        self.plain_tensor = y.detach().mean(0)
        self.linear.bias.data = self.linear.bias.data.double().float() + 1
        self.frozen.data.add_(1)
        self.count += 1
        self.text, self.nothing, self.ratio, self.new = "b", 3, 1.0, torch.ones(1)
        self.log.append(y.detach())
        self.memo["new"] = 1
        self.memo["old"].zero_()
        self.names.add("b")
        self.recent.append(3)
        self.lru.move_to_end("a")
        self.counter["a"] += 1
        self.groups["b"].append(2)
        self.nested[0]["deep"][0].append(2)
        self.nested[0]["deep"][1] += 1
        self.cyclic.append(2)
        self.namespace.n += 1
        self.touchy.count += 1
        self.unpicklable.calls = 1
        del self.twice
        self.twice = nn.Identity()
        self.train(False)
        self.register_forward_hook(lambda *_: None)
        self.linear.weight.requires_grad_(True)
        own, rng, legacy, python = self.generators
        noise = torch.rand((), generator=own) + rng.random() + legacy.rand() + python.random()
        noise = noise + torch.rand(()) + numpy.random.rand() + random.random()  # noqa: NPY002
        if self.passes == self.fail_at:
            raise self.error("on purpose")
        self.norm.train()
        return (y * noise).sin() + self.plain_tensor


def photograph(module, *tensors):
    """All that a run could change, as comparable values; written independently of `Snapshot`."""

    def value(thing, depth=0):
        if isinstance(thing, torch.Tensor):
            raw = thing.detach().clone().reshape(-1).contiguous().view(torch.uint8).tolist()
            return ("tensor", id(thing), tuple(thing.shape), raw, thing.requires_grad, thing.is_leaf)
        if depth > 4:
            return "deep"
        if isinstance(thing, dict):
            return [(repr(k), value(v, depth + 1)) for k, v in thing.items()]
        if isinstance(thing, set):
            return sorted(map(repr, thing))
        if isinstance(thing, list | tuple | deque):
            return [value(v, depth + 1) for v in thing]
        if isinstance(thing, SimpleNamespace | Touchy):
            return [(k, repr(v)) for k, v in vars(thing).items() if v is not thing]
        return repr(thing) if isinstance(thing, int | float | str | type(None)) else id(thing)

    state = {}
    for name, part in module.named_modules(remove_duplicate=False):
        state[name] = {k: value(v) for k, v in vars(part).items()}
    state["function"] = dict(vars(module.unpicklable))
    own, rng, legacy, python = module.generators
    state["generators"] = [
        own.get_state().tolist(), repr(rng.bit_generator.state), repr(legacy.get_state()), python.getstate()
    ]  # fmt: skip
    state["streams"] = [torch.get_rng_state().tolist(), repr(numpy.random.get_state()), random.getstate()]  # noqa: NPY002
    leaves = [*module.parameters(), *tensors]
    state["grads"] = [(id(t.grad), None if t.grad is None else t.grad.tolist()) for t in leaves]
    state["tensors"] = [value(t) for t in tensors]
    return state


def run_record(segment, *args):
    return record(segment, *args)


INSTRUMENTS = {"record": run_record}
for each in STRATEGIES:
    INSTRUMENTS[f"passes, {each.name}"] = functools.partial(passes, strategy=each)
    INSTRUMENTS[f"divergence, {each.name}"] = functools.partial(divergence, strategy=each)


def messy_with_grads(**options):
    module, x = Messy(**options), torch.randn(6, 4, requires_grad=True)
    for leaf in (*module.parameters(), x):
        if leaf.requires_grad:
            leaf.grad = torch.randn_like(leaf)
    return module, x


@pytest.mark.parametrize("instrument", INSTRUMENTS.values(), ids=INSTRUMENTS)
@pytest.mark.parametrize("error", [None, ArithmeticError, KeyboardInterrupt])
@pytest.mark.parametrize("fail_at", [1, 2], ids=["in forward", "in recomputation"])
def test_everything_is_as_it_was(instrument, error, fail_at):
    module, x = messy_with_grads(fail_at=fail_at if error else None, error=error)
    before = photograph(module, x)
    try:
        instrument(module, x)
    except (ArithmeticError, KeyboardInterrupt) as raised:
        assert type(raised) is error
        assert error is KeyboardInterrupt or fail_at == 1  # what a recomputation raises is kept, not passed on
    assert photograph(module, x) == before


def test_a_run_without_instruments_would_have_changed_nearly_all_of_it():
    module, x = messy_with_grads()
    before = photograph(module, x)
    module(x).sum().backward()
    after = photograph(module, x)
    changed = {key for key in before if before[key] != after[key]}
    assert changed >= {"", "norm", "generators", "streams", "grads", "function"}
    changed = {key for key in before[""] if before[""][key] != after[""].get(key)}
    assert changed >= {"count", "text", "log", "memo", "lru", "nested", "cyclic", "namespace", "touchy", "training"}


def test_changes_names_what_a_run_changed():
    module, x = messy_with_grads()
    with isolated(module, x) as call:
        module(*call.args)
        changes = call.before.changes()
    assert set(changes) >= {
        "written", "rebound", "cache", "view", "resized", "plain_tensor", "linear.bias", "frozen", "count", "text",
        "log", "memo", "memo['old']", "names", "recent", "lru", "counter", "groups", "nested[0]['deep'][0]", "cyclic",
        "nested[0]['deep'][1]", "namespace.n", "touchy.count", "unpicklable.calls", "norm.running_mean", "training",
        "_forward_hooks", "twice", "passes", "new",
    }  # fmt: skip
    assert not {"linear.weight", "tied", "slots", "unpicklable", "generators"} & set(changes)
    assert Snapshot(module, x).changes() == []


# Closures, partials, bound methods


@pytest.mark.parametrize("instrument", INSTRUMENTS.values(), ids=INSTRUMENTS)
def test_closure_variables_are_put_back(instrument):
    count = 0
    w = torch.ones(3, requires_grad=True)
    buffer = torch.zeros(3)

    def deeper(x, history=[]):  # noqa: B006
        nonlocal buffer, late
        history.append(x)
        buffer += 1
        buffer = buffer * 2
        late = 1
        deeper.calls = len(history)
        return x * w

    def segment(x):
        nonlocal count
        count += 1
        return deeper(x).sin()

    kept = buffer
    instrument(segment, torch.randn(3, requires_grad=True))
    assert (count, deeper.__defaults__, vars(deeper)) == (0, ([],), {})
    assert buffer is kept and buffer.tolist() == [0, 0, 0] and w.grad is None
    (late_cell,) = (c for v, c in zip(deeper.__code__.co_freevars, deeper.__closure__, strict=True) if v == "late")
    with pytest.raises(ValueError, match="empty"):
        late_cell.cell_contents  # noqa: B018
    late = None


class Holder:
    def __init__(self, w):
        self.w, self.calls = w, 0

    def method(self, x, *, by=1.0):
        self.calls += 1
        self.w.data.add_(1)
        return (x * self.w * by).sin()

    __call__ = method


@pytest.mark.parametrize(
    "wrap",
    [lambda h: h, lambda h: h.method, lambda h: functools.partial(h.method, by=2.0), lambda h: lambda x: h.method(x)],
    ids=["object", "bound method", "partial", "lambda"],
)
@pytest.mark.parametrize("instrument", INSTRUMENTS.values(), ids=INSTRUMENTS)
def test_every_kind_of_callable_is_searched(wrap, instrument):
    holder = Holder(torch.ones(3, requires_grad=True))
    instrument(wrap(holder), torch.randn(3, requires_grad=True))
    assert (holder.calls, holder.w.tolist(), holder.w.grad) == (0, [1, 1, 1], None)


def test_variables_of_one_name_in_two_functions_are_two():
    def make(w, inner=None):
        def segment(x):
            w.data.add_(1)
            return x * w if inner is None else inner(x * w)

        return segment

    a, b = torch.zeros(2, requires_grad=True), torch.ones(2, requires_grad=True)
    segment = make(a, make(b))
    assert set(Snapshot(segment).parameters()) == {"w", "inner.w"}
    record(segment, torch.ones(2))
    assert (a.tolist(), b.tolist()) == ([0, 0], [1, 1])


def test_names_of_captured_and_given_arguments_do_not_collide():
    args = (torch.ones(2, requires_grad=True),)
    partial = functools.partial(lambda y, x: x * y * args[0], torch.ones(2, requires_grad=True))
    names = Snapshot(partial, torch.ones(2, requires_grad=True)).parameters()
    assert set(names) == {"segment.args[0]", "segment.args[0]'", "args[0]"}


# The caller's own graph


@pytest.mark.parametrize("instrument", INSTRUMENTS.values(), ids=INSTRUMENTS)
def test_the_callers_graph_survives(instrument):
    def graph():
        torch.manual_seed(3)
        w, x = torch.randn(4, requires_grad=True), torch.randn(4, requires_grad=True)
        hidden = (w.exp() * w).sin()
        hidden.retain_grad()
        return w, x, hidden

    def finish(w, x, hidden):
        (hidden * x.exp()).sum().backward()
        return w.grad, x.grad, hidden.grad

    expected = finish(*graph())
    w, x, hidden = graph()
    instrument(lambda y: (y * hidden).sin(), x.exp())
    assert w.grad is None and hidden.grad is None
    assert all(map(torch.equal, finish(w, x, hidden), expected))


def test_the_callers_batch_norm_can_still_be_differentiated():
    norm, x = nn.BatchNorm1d(4), torch.randn(6, 4, requires_grad=True)
    loss = norm(x).sin().sum()
    record(norm, x)
    loss.backward()  # restoring the statistics must not look like a change in place
    assert x.grad is not None


def test_torchs_backward_is_itself_again():
    before = torch.autograd.backward
    with pytest.raises(ZeroDivisionError):
        record(lambda: 1 / 0)
    passes(torch.sin, torch.ones(2, requires_grad=True), strategy=REENTRANT)
    assert torch.autograd.backward is before


def test_the_caller_may_be_iterating():
    layers = OrderedDict((name, nn.Linear(2, 2)) for name in "abc")
    saved = [len(record(lambda x, name=name: layers[name](x), torch.ones(1, 2))) for name in layers]
    assert saved == [1, 1, 1]


# Arguments


def test_arguments_are_copied_down_to_their_tensors():
    a, b, c = (torch.ones(2, requires_grad=True) for _ in range(3))
    given = {"a": [a, (b, 3)], "same": a}

    def segment(tree, *, scale):
        tree["a"][0].mul_(5)
        tree["a"].append(1)
        return tree["a"][0] * tree["same"] * tree["a"][1][0] * scale

    with isolated(segment, given, scale=c) as call:
        segment(*call.args, **call.kwargs).sum().backward()
        grads = {name: leaf.grad.tolist() for name, leaf in call.leaves.items()}
    assert grads == {"args[0]['a'][0]": [50, 50], "args[0]['a'][1][0]": [25, 25], "kwargs['scale']": [25, 25]}
    assert len(given["a"]) == 2 and a.tolist() == [1, 1] and a.grad is None


def test_an_argument_that_is_an_object_is_searched():
    holder = Holder(torch.ones(3, requires_grad=True))
    passes(lambda h, x: h.method(x), holder, torch.ones(3))
    assert (holder.calls, holder.w.tolist(), holder.w.grad) == (0, [1, 1, 1], None)


def test_a_huge_list_is_put_back():
    box = SimpleNamespace(items=list(range(1_000_000)))

    def segment(x):
        box.items.append(1)
        box.items[0] = -1
        return x.sin()

    record(segment, torch.ones(1))
    assert len(box.items) == 1_000_000 and box.items[0] == 0


# Unusual tensors


@pytest.mark.parametrize("instrument", INSTRUMENTS.values(), ids=INSTRUMENTS)
def test_a_lazy_parameter_is_named(instrument):
    lazy = nn.Sequential(nn.ReLU(), nn.LazyLinear(3))
    with pytest.raises(ValueError, match=r"1\.weight has no values yet: call the module once"):
        instrument(lazy, torch.ones(2, 2))
    assert isinstance(lazy[1], nn.LazyLinear)


def test_meta_tensors_can_be_recorded_but_not_compared():
    linear, x = nn.Linear(2, 2, device="meta"), torch.ones(3, 2, device="meta", requires_grad=True)
    assert len(record(linear, x)) == len(record(nn.Linear(2, 2), torch.ones(3, 2, requires_grad=True)))
    assert passes(linear, x).error is None
    with pytest.raises(ValueError, match="meta device"):
        divergence(linear, x)


@pytest.mark.parametrize("dtype", [torch.half, torch.bfloat16, torch.complex64, torch.complex128, torch.float64])
@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda s: s.name)
def test_other_dtypes(dtype, strategy):
    x = torch.randn(4, dtype=dtype, requires_grad=True)
    assert divergence(lambda y: (y * y.sin()).conj() * 2, x, strategy=strategy).equal
    assert record(torch.sin, x)[0].dtype is dtype


@pytest.mark.parametrize("strategy", [NON_REENTRANT, REENTRANT], ids=lambda s: s.name)
def test_sparse_gradients_and_sparse_arguments(strategy):
    table = nn.Embedding(5, 3, sparse=True)
    index = torch.tensor([1, 1, 4])
    result = divergence(lambda scale, i: table(i) * scale, torch.ones(3, requires_grad=True), index, strategy=strategy)
    assert result.equal and {row.name for row in result.rows} == {"args[0]", "table.weight"}
    sparse = torch.eye(3).to_sparse().requires_grad_()
    assert divergence(torch.sparse.mm, sparse, torch.ones(3, 2, requires_grad=True), strategy=strategy).equal


NAN = float("nan")


@pytest.mark.filterwarnings("ignore:Sparse CSR")
@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        (torch.tensor([NAN, 1.0]), torch.tensor([NAN, 1.0]), True),
        (torch.tensor(0.0), torch.tensor(-0.0), False),
        (torch.tensor([0.0]), torch.tensor(0.0), False),
        (torch.ones(2), torch.ones(2, dtype=torch.float64), False),
        (torch.ones(0, 3), torch.ones(0, 3), True),
        (torch.ones(2, 3).t(), torch.ones(3, 2), True),
        (torch.ones(3).expand(2, 3), torch.ones(2, 3), True),
        (torch.tensor([True]), torch.tensor([True]), True),
        (torch.tensor([1 + 2j]).conj(), torch.tensor([1 - 2j]), True),
        (torch.eye(2).to_sparse(), torch.eye(2).to_sparse(), True),
        (torch.eye(2).to_sparse(), torch.zeros(2, 2).to_sparse(), False),
        (torch.ones(2, device="meta"), torch.ones(2, device="meta"), True),
        (torch.ones(2, device="meta"), torch.ones(2), False),
    ],
)
def test_same_bits(a, b, same):
    assert same_bits(a, b) is same
    assert same_bits(b, a) is same
    if a.layout is b.layout is torch.strided and a.dim() == 2 and not a.is_meta and not b.is_meta:
        assert same_bits(a.to_sparse_csr(), b.to_sparse_csr()) is same


# --- Switches, and several threads ----------------------------------------------------------


def switches_off(x):
    output = x.sin()
    torch.set_num_threads(2)
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.set_default_dtype(torch.float64)
    torch.backends.cuda.enable_flash_sdp(False)
    torch.set_grad_enabled(False)
    return output


@pytest.mark.parametrize("tool", [record, passes, divergence, footprint])
def test_what_a_segment_switches_is_switched_back(tool):
    def positions():
        threads, dtype = torch.get_num_threads(), torch.get_default_dtype()
        attention = torch.backends.cuda.flash_sdp_enabled()
        return torch.is_grad_enabled(), threads, dtype, torch.get_deterministic_debug_mode(), attention

    before, told = positions(), ""
    try:
        try:
            tool(switches_off, torch.randn(3, requires_grad=True))
        except ValueError as error:
            told = str(error)
        assert positions() == before
        assert tool in (record, footprint) or "grad mode is off" in told
    finally:
        torch.set_grad_enabled(True)
        torch.set_default_dtype(torch.float32)
        torch.use_deterministic_algorithms(False)
        torch.backends.cuda.enable_flash_sdp(True)


@pytest.mark.parametrize("tool", [passes, divergence, footprint])
@pytest.mark.parametrize("off", [torch.no_grad, torch.inference_mode])
def test_without_grad_mode_the_reason_is_said(tool, off):
    with off(), pytest.raises(ValueError, match="grad mode is off"):
        tool(nn.Linear(3, 3), torch.randn(2, 3))


def test_two_instruments_in_two_threads_leave_backward_as_it_was():
    backward = torch.autograd.backward
    first_is_in, second_is_in, first_is_out = (threading.Event() for _ in range(3))

    def slow(x):
        first_is_in.set()
        assert second_is_in.wait(20)
        return x.sin()

    def fast(x):
        second_is_in.set()
        assert first_is_out.wait(20)
        return x.sin()

    def one():
        record(slow, torch.randn(3, requires_grad=True))
        first_is_out.set()

    thread = threading.Thread(target=one)
    thread.start()
    assert first_is_in.wait(20)
    try:
        record(fast, torch.randn(3, requires_grad=True))
        thread.join()
        assert torch.autograd.backward is backward
    finally:
        torch.autograd.backward = backward


def test_the_systems_randomness_has_no_state_to_put_back():
    layer = nn.Linear(3, 3)
    layer.secrets = random.SystemRandom()
    assert divergence(layer, torch.randn(2, 3)).equal


class MakesWhatIsLookedUp(OrderedDict):
    """A registry that gives a new instance at each look-up, as that of activation functions in `transformers` does."""

    def __getitem__(self, key):
        return super().__getitem__(key)()

    def __setitem__(self, key, value):
        if key in self:
            raise ValueError("it is registered")
        super().__setitem__(key, value)

    def items(self):
        raise ValueError("not before all is imported")


def test_a_container_of_somebodys_own_class_is_read_and_put_back_past_its_look_up():
    registry = MakesWhatIsLookedUp(relu=nn.ReLU)
    registry["gelu"] = nn.GELU
    registry.move_to_end("relu")

    class Found(nn.Module):
        def __init__(self):
            super().__init__()
            self.registry = registry

        def forward(self, x):
            return self.registry["gelu"](x)

    state = Snapshot(Found())
    assert state.changes() == []
    state.restore()
    assert [*OrderedDict.items(registry)] == [("gelu", nn.GELU), ("relu", nn.ReLU)]
    OrderedDict.__setitem__(registry, "gelu", nn.SiLU)
    registry["tanh"] = nn.Tanh
    assert state.changes() == ["registry"]
    state.restore()
    assert [*OrderedDict.items(registry)] == [("gelu", nn.GELU), ("relu", nn.ReLU)]
    assert type(registry["gelu"]) is nn.GELU
