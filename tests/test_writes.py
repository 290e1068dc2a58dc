"""The review question: all that a forward leaves behind is listed, with what comes of it, and then taken back."""

import functools
import random
import sys
from collections import deque
from types import ModuleType

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm

from recompute_lab.instruments.state import Snapshot
from recompute_lab.instruments.writes import writes

TOTAL, LOG = 0, []
MASK = torch.ones(4)
FIRST: int
SETTINGS = ModuleType("settings_of_the_test")
SETTINGS.calls = 0
BOTH = ("reentrant", "non-reentrant")


class Writer(nn.Module):
    """Does all there is to do other than return a value: [N, 4] -> [N, 4]."""

    instances: list = []
    calls = 0

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.linear, self.norm = spectral_norm(nn.Linear(4, 4)), nn.BatchNorm1d(4)
        self.keys, self.table, self.last, self.factor = [], None, 0.0, 1.0
        self.generator, self.rng = torch.Generator(), random.Random(0)
        self.counts, self.recent, self.by_name, self.kinds = np.zeros(3), deque(maxlen=2), {}, set()
        seen = []
        self.norm.register_forward_hook(lambda module, args, output: seen.append(1))

    def forward(self, x, memo=[]):  # noqa: B006
        global TOTAL, FIRST
        TOTAL += 1
        FIRST = 1
        LOG.append(TOTAL)
        memo.append(1)
        Writer.calls += 1
        type(self).instances.append(1)
        SETTINGS.calls += 1
        MASK.mul_(0.5)
        x.data.mul_(2.0)
        self.counts += 1
        self.recent.append(1)
        self.by_name["calls"] = 1
        self.kinds.add(str(x.dtype))
        if self.table is None:
            self.table = (torch.arange(4.0),)
        h = self.norm(self.linear(x)) * self.table[0]
        self.keys.append(h)
        self.last = float(h.detach().norm())
        h = torch.cat(self.keys).sum(0) + h * self.factor
        self.factor *= 2
        h = h * torch.rand(h.shape, generator=self.generator) * random.random() * self.rng.random()
        return torch.tanh(nn.functional.dropout(h) * float(np.random.rand()))


@pytest.fixture
def found():
    torch.manual_seed(0)
    model, x = Writer(), torch.randn(8, 4, requires_grad=True)
    before = Snapshot(model, x)
    result = {write.name: write for write in writes(model, x)}
    assert before.changes() == before.moved_streams() == before.moved_switches() == []
    assert (TOTAL, LOG, Writer.calls, SETTINGS.calls, MASK.tolist()) == (0, [], 0, 0, [1.0] * 4)
    assert "FIRST" not in globals()
    return result


def test_every_kind_of_write_is_found(found):
    assert {name: write.kind for name, write in found.items()} == {
        "args[0]": "argument",
        "by_name": "dict",
        "counts": "NumPy array",
        "factor": "attribute",
        "FIRST": "global",
        "generator": "random stream",
        "keys": "list",
        "kinds": "set",
        "last": "attribute",
        "linear.parametrizations.weight.0._u": "buffer",
        "linear.parametrizations.weight.0._v": "buffer",
        "LOG": "list",
        "MASK": "tensor",
        "memo": "list",
        "norm._forward_hooks[0].seen": "list",
        "norm.num_batches_tracked": "buffer",
        "norm.running_mean": "buffer",
        "norm.running_var": "buffer",
        "NumPy": "random stream",
        "Python": "random stream",
        "recent": "deque",
        "rng": "random stream",
        "calls": "global",
        "table": "attribute",
        "torch": "random stream",
        "TOTAL": "global",
        "Writer.calls": "class attribute",
        "Writer.instances": "list",
    }


def test_what_is_also_read_is_told_from_what_is_only_written(found):
    read = {name for name, write in found.items() if write.read}
    streams = {"generator", "NumPy", "Python", "rng", "torch"}
    assert read == streams | {"args[0]", "factor", "keys", "linear.parametrizations.weight.0._v"}


def test_what_ends_up_as_in_the_plain_run_though_it_is_written_twice(found):
    once = {name for name, write in found.items() if not write.repeated_by}
    # Assigned, not accumulated; and torch's own stream, which both implementations replay.
    assert once == {"by_name", "FIRST", "kinds", "table", "torch"}
    assert found["norm.running_mean"].repeated_by == BOTH


def test_what_is_told(found):
    told = {name: found[name].told for name in ("TOTAL", "keys", "table", "FIRST", "norm.running_mean", "torch")}
    assert told == {
        "TOTAL": "0 → 1",
        "keys": "0 → 1 entries",
        "table": "None → a tuple",
        "FIRST": "new",
        "norm.running_mean": "[4] changed",
        "torch": "drawn from",
    }


def test_a_switch_that_is_left_elsewhere():
    def segment(x):
        torch.set_default_dtype(torch.float64)
        return torch.tanh(x)

    (write,) = writes(segment, torch.randn(3, requires_grad=True))
    assert (write.kind, write.name) == ("switch", "default dtype")
    assert torch.get_default_dtype() is torch.float32


def test_early_stop_spares_what_stands_at_the_end():
    calls = []

    def segment(x):
        x = torch.tanh(x)
        calls.append(1)
        return x * 2.0

    (write,) = writes(segment, torch.randn(3, requires_grad=True))
    assert write.repeated_by == ("reentrant",) and calls == []


def test_a_table_that_is_read_by_the_recomputation_only_under_one_implementation_raises():
    class Table(nn.Module):
        def __init__(self):
            super().__init__()
            self.frequencies, self.table = nn.Parameter(torch.rand(4)), None

        def forward(self, x):
            if self.table is None:
                self.table = self.frequencies.cos()
            return torch.sin(x * self.table)

    result = writes(Table(), torch.randn(3, 4, requires_grad=True))
    assert set(result.refused) == {"non-reentrant"} and result.names == {"table"}
    assert "non-reentrant: raised CheckpointError" in str(result)


def test_what_decides_only_what_is_saved_is_read():
    """Output and gradients are the same with and without the flag; one saved tensor more is not."""

    class FirstCall(nn.Module):
        def __init__(self):
            super().__init__()
            self.called = False

        def forward(self, x):
            if not self.called:
                self.called = True
                x = x**1
            return torch.sin(x)

    (write,) = writes(FirstCall(), torch.randn(3, 4, requires_grad=True))
    assert write.name == "called" and write.read


def test_an_argument_changed_in_place_lends_its_history_to_nothing_else():
    class InPlace(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight, self.calls = nn.Parameter(torch.ones(4)), 0

        def forward(self, x):
            self.calls += 1
            x += self.weight
            return torch.sin(x)

    found = {w.name: w for w in writes(InPlace(), torch.randn(3, 4, requires_grad=True))}
    assert not found["calls"].read and found["args[0]"].read


def test_two_lists_of_one_name_are_told_apart():
    class Base(nn.Module):
        def forward(self, x, seen=[]):  # noqa: B006
            seen.append(1)
            return torch.sin(x)

    class Derived(Base):
        def forward(self, x, seen=[]):  # noqa: B006
            seen.append(1)
            return super().forward(x)

    found = writes(Derived(), torch.randn(3, requires_grad=True))
    assert sorted(w.told for w in found) == ["0 → 1 entries", "0 → 1 entries"] and len(found.names) == 2


def test_a_pure_segment():
    result = writes(nn.Linear(3, 3), torch.randn(2, 3))
    assert len(result) == 0 and str(result) == "nothing but its value"


def test_without_gradients_the_plain_run_is_all():
    model = nn.BatchNorm1d(3, affine=False)
    result = writes(model, torch.randn(4, 3))
    assert result.names == {"num_batches_tracked", "running_mean", "running_var"}
    assert not any(write.repeated_by or write.read for write in result)
    with torch.no_grad():
        assert writes(model, torch.randn(4, 3)).names == result.names


def test_a_segment_that_raises_is_not_hidden_and_leaves_nothing():
    calls = []

    def segment(x):
        calls.append(1)
        raise ArithmeticError("no")

    with pytest.raises(ArithmeticError):
        writes(segment, torch.ones(2, requires_grad=True))
    assert calls == []


def test_what_is_no_segment_is_refused():
    with pytest.raises(TypeError, match="a segment is a callable"):
        writes(3, torch.ones(2))


def test_a_segment_that_names_a_global_module_is_searched_through_it():
    model = nn.BatchNorm1d(3)
    namespace = {"model": model, "__name__": "elsewhere"}
    exec("def segment(x):\n    return model(x)", namespace)
    assert set(Snapshot(namespace["segment"]).parameters()) == {"model.weight", "model.bias"}
    assert "model.running_mean" in writes(namespace["segment"], torch.randn(4, 3)).names


def test_the_code_of_libraries_is_not_searched():
    snapshot = Snapshot(lambda x: sys.modules and np.zeros(3) and torch.tanh(x))
    assert not snapshot.tensors and snapshot.changes() == []


class Contrary(list):
    """A list of somebody's whose own methods raise, and which keeps an attribute."""

    seen = None

    def _refuses(self, *_):
        raise NotImplementedError

    copy = clear = __eq__ = _refuses
    __hash__ = None


def test_a_list_whose_own_methods_raise_is_found_and_put_back():
    kept = Contrary([1])

    def segment(x):
        kept.append(2)
        kept.seen = len(kept)
        return torch.tanh(x)

    found = {write.name: write for write in writes(segment, torch.randn(3, 4, requires_grad=True))}
    assert found.keys() == {"kept", "kept.seen"} and list(kept) == [1] and kept.seen is None
    assert found["kept"].told == "1 → 2 entries" and found["kept"].repeated_by == ("reentrant", "non-reentrant")


def test_a_key_that_cannot_be_shown_is_named_by_its_type():
    class Key:
        def __repr__(self):
            raise NotImplementedError

    inner = []
    outer = {Key(): inner}

    def segment(x):
        next(iter(outer.values())).append(1)
        return torch.tanh(x)

    assert writes(segment, torch.randn(3, 4, requires_grad=True)).names == {"outer[<Key>]"}


def test_a_set_tells_its_entries():
    kept = set()

    def segment(x):
        kept.add(1)
        return torch.tanh(x)

    (write,) = writes(segment, torch.randn(3, 4, requires_grad=True))
    assert (write.told, write.repeated_by) == ("0 → 1 entries", ())


class Link:
    def __init__(self, *before):
        self.before = before


@pytest.mark.parametrize("times", [1, 2])
def test_a_long_chain_of_objects_is_compared_and_put_back(times):
    """2,000 deep; and each met twice, which copied one by one would be 2^2000."""

    class Chained(nn.Module):
        def __init__(self):
            super().__init__()
            self.last = None
            for _ in range(2000):
                self.last = Link(*[self.last] * times)

        def forward(self, x):
            self.last = Link(*[self.last] * times)
            return torch.tanh(x)

    module = Chained()
    last = module.last
    (write,) = writes(module, torch.randn(3, 4, requires_grad=True))
    assert write.repeated_by == ("reentrant", "non-reentrant") and module.last is last


def test_what_a_cached_function_writes():
    log = []

    @functools.lru_cache
    def table(columns):
        log.append(columns)
        return torch.ones(columns)

    found = writes(lambda x: torch.tanh(x) * table(4), torch.randn(3, 4, requires_grad=True))
    assert {write.name: write.kind for write in found} == {"table.log": "list", "table": "cache"}


def test_one_list_under_two_names_is_one_write():
    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.seen = seen = []
            self.note = lambda: seen.append(1)

        def forward(self, x):
            self.note()
            return torch.sin(x)

    assert [w.name for w in writes(Both(), torch.randn(3, requires_grad=True))] == ["seen"]
