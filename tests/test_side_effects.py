"""The family of side effects: what each comes to under each implementation, and that its repair holds."""

import math
import re
import warnings

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from recompute_lab.instruments.checkpointing import NO_EARLY_STOP, NON_REENTRANT, PLAIN, REENTRANT, weighted_sum
from recompute_lab.instruments.gradients import ROUNDING, divergence
from recompute_lab.lessons import side_effect_repairs as mended
from recompute_lab.lessons import side_effects as lesson
from recompute_lab.repairs.recomputation import announced, recomputing
from recompute_lab.repairs.replay import state_replayed
from recompute_lab.specimens import kept_things
from recompute_lab.specimens.counters import PLACES, Counted, CountedAt, WarmedUp
from recompute_lab.specimens.running_state import SpectrallyNormed, frozen_in_recomputation
from recompute_lab.specimens.side_effects import FAMILY, GUARD, NO_CACHE, NONE, PLACE, REPLAY, RETURN, specimen
from recompute_lab.views import side_effects as draw
from recompute_lab.views.style import png

BOTH = (REENTRANT, NON_REENTRANT)
ALL = (*BOTH, NO_EARLY_STOP)
NAMES = [one.name for one in FAMILY]
HARMLESS = {"sample's own statistic", "last value, overwritten"}
LOGGED = {"counter, logged", "average, written only", "hook that logs"}
ONLY_WRITTEN = LOGGED | {"collected loss", "last value, overwritten"}
SILENT = set(NAMES) - ONLY_WRITTEN - HARMLESS - {"cache that grows", "table built on first call"}

each = pytest.mark.parametrize("name", NAMES)
under = pytest.mark.parametrize("strategy", ALL, ids=lambda s: s.name)


@pytest.fixture(scope="module")
def found():
    return {(s.specimen, s.strategy): s for s in lesson.symptoms()}


@pytest.fixture(autouse=True)
def quiet():
    """Inside an outer reentrant checkpoint no input requires grad, and torch warns of it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="None of the inputs have requires_grad")
        yield


# --- What a side effect comes to


@each
def test_what_is_only_written_and_what_is_also_read_is_measured(name):
    expected = "only written" if name in ONLY_WRITTEN else "also read"
    assert lesson.verdict(specimen(name)) == ("writes nothing" if name == "sample's own statistic" else expected)


@under
@pytest.mark.parametrize("name", sorted(set(NAMES) - HARMLESS - {"table built on first call"}))
def test_the_write_happens_twice(found, name, strategy):
    symptom = found[name, strategy.name]
    assert symptom.written == 2 and symptom.state_wrong


@under
@pytest.mark.parametrize("name", sorted(LOGGED))
def test_gradients_of_what_is_only_written_are_equal_bit_for_bit(found, name, strategy):
    result = found[name, strategy.name].result
    assert result.outcome == "fine" and result.rows and all(row.equal for row in result.rows)
    assert not result.missing and result.changed


@under
@pytest.mark.parametrize("name", sorted(SILENT))
def test_gradients_of_what_is_also_read_are_wrong_and_nothing_raises(found, name, strategy):
    result = found[name, strategy.name].result
    assert result.raised is None and result.outcome == "silent" and 1e-3 < result.worst < 10


@under
@pytest.mark.parametrize("name", sorted(HARMLESS))
def test_what_depends_on_the_input_alone_is_equal_in_everything(found, name, strategy):
    symptom = found[name, strategy.name]
    assert symptom.result.equal and not symptom.state_wrong
    assert symptom.written == (1 if name == "last value, overwritten" else 0)


def test_a_cache_that_grows_is_noticed_by_its_shapes_or_halves_the_gradients(found):
    for strategy in (NON_REENTRANT, NO_EARLY_STOP):
        assert found["cache that grows", strategy.name].outcome == "metadata"
    result = found["cache that grows", REENTRANT.name].result
    errors = {row.name: row.error for row in result.rows}
    assert result.output_equal and errors["query.weight"] < ROUNDING
    assert errors["key.weight"] == pytest.approx(0.5, abs=1e-4) == errors["value.weight"]


def test_a_table_built_on_the_first_call_raises_or_loses_a_gradient(found):
    for strategy in (NON_REENTRANT, NO_EARLY_STOP):
        symptom = found["table built on first call", strategy.name]
        assert symptom.outcome == "count" and symptom.written == 1
        counts = re.findall(r"\d+", str(symptom.result.raised))
        assert int(counts[0]) > int(counts[1])
    result = found["table built on first call", REENTRANT.name].result
    assert result.outcome == "silent" and result.missing == ["frequencies"]
    assert all(row.equal for row in result.rows)


def test_of_a_python_number_non_reentrant_keeps_the_forward_s_in_the_graph(found):
    rows = {row.name: row for row in found["counter, read for a warm-up", NON_REENTRANT.name].result.rows}
    assert rows["first.weight"].equal and rows["args[0]"].equal
    assert rows["second.weight"].error == pytest.approx(1.0, abs=1e-3)  # its input was saved, at twice the share
    rows = {row.name: row for row in found["counter, read for a warm-up", REENTRANT.name].result.rows}
    assert rows["first.weight"].error == pytest.approx(1.0, abs=1e-2)


def test_a_collected_loss_without_a_graph_tells_the_router_nothing(found):
    result = found["collected loss", REENTRANT.name].result
    assert result.outcome == "silent" and not result.missing  # the router has a gradient, from the output
    assert {row.name for row in result.rows if not row.equal} == {"router.weight", "router.bias", "args[0]"}
    for strategy in (NON_REENTRANT, NO_EARLY_STOP):
        assert all(row.equal for row in found["collected loss", strategy.name].result.rows)
    shares = lesson.router_gradients()
    assert shares == {"plain": 1.0, "reentrant": 0.0, "non-reentrant": 1.0, "non-reentrant, no early stop": 1.0}


def test_taken_before_backward_the_term_of_one_step_comes_into_the_next():
    assert lesson.taken_before_backward(PLAIN) == [(1, 0.0)] * 4
    for strategy in (NON_REENTRANT, NO_EARLY_STOP):
        first, *later = lesson.taken_before_backward(strategy)
        assert first == (1, 0.0) and len(later) == 3 and all(n == 2 and error > 1e-3 for n, error in later)
        assert max(error for _, error in later) > 1  # more of yesterday's than of today's
    first, (terms, message) = lesson.taken_before_backward(REENTRANT)
    assert first == (1, 1.0) and terms == 2 and "second time" in message


def test_non_reentrant_does_not_see_what_is_changed_in_place():
    found = lesson.changed_in_place()
    assert found["plain"] is None and found["reentrant"] is None
    assert found["non-reentrant"] > 1e-3 and found["non-reentrant, no early stop"] > 1e-3


def test_errors_fade_with_what_is_tracked_or_do_not():
    spectral = lesson.errors_over_training("spectral norm", NON_REENTRANT)
    assert spectral[0] > 0.1 and spectral[100] < ROUNDING
    counted = lesson.errors_over_training("counter, read for a warm-up", NON_REENTRANT)
    assert counted[1] == pytest.approx(0.5, abs=1e-3) and counted[100] == 0
    queue = lesson.errors_over_training("queue of features", REENTRANT, at=(0, 100))
    assert min(queue.values()) > 0.1
    assert math.isnan(lesson.errors_over_training("cache that grows", NON_REENTRANT, at=(0,))[0])


@pytest.mark.parametrize("strategy", ALL, ids=lambda s: s.name)
def test_each_backward_recomputes_once_more(strategy):
    module = Counted()
    output = strategy(module, lesson.rows()).sum()
    output.backward(retain_graph=True)
    output.backward()
    assert module.calls == 3


def test_what_stands_behind_the_last_saved_tensor_is_counted_once_by_luck():
    assert lesson.placement() == {
        place: {
            "plain": 1,
            "reentrant": 2,
            "non-reentrant": 1 if place == PLACES[2] else 2,
            "non-reentrant, no early stop": 2,
        }
        for place in PLACES
    }
    saved = {place: lesson.saved_tensors(place) for place in PLACES}
    assert [before for _, before in saved.values()] == [0, 3, 5]
    assert all(operators == ["linear", "linear", "tanh", "linear", "linear"] for operators, _ in saved.values())


def test_one_operation_more_ends_the_luck():
    module = CountedAt(PLACES[2])
    checkpoint(lambda x: torch.tanh(module(x)), lesson.rows(), use_reentrant=False).sum().backward()
    assert module.calls == 2


def test_a_place_that_is_none_is_refused():
    with pytest.raises(ValueError, match="a place is one of at the top"):
        CountedAt("below")
    with pytest.raises(ValueError, match="a specimen is one of counter"):
        specimen("counter")


# --- Repairs


@under
@each
def test_the_repaired_one_trains_as_the_faulty_one_does_without_checkpointing(name, strategy):
    one = specimen(name)
    module = one.repaired()
    context = one.context(module) if one.context else None
    checkpointed = mended.train(module, lesson.with_context(strategy, context))
    assert checkpointed.differs_from(mended.train(module, PLAIN)) == []
    plain = mended.train(one.faulty(), PLAIN)
    if one.repair == PLACE:  # the cache has another form
        keys = checkpointed.state["keys"]
        held = torch.cat([key for (key,) in plain.state["keys"].entries])
        assert torch.equal(keys[: len(held)], held) and not keys[len(held) :].any() and len(held) == 160
        for training in (checkpointed, plain):
            training.state = {n: v for n, v in training.state.items() if n not in ("keys", "values")}
    assert checkpointed.differs_from(plain) == []
    others = checkpointed.state.keys() ^ plain.state.keys()
    assert others == ({"table"} if one.repair == NO_CACHE else {"losses"} if one.repair == RETURN else set())


def test_the_trainings_differ_where_nothing_is_repaired():
    for name in NAMES:
        module = specimen(name).faulty()
        differs = mended.train(module, REENTRANT, steps=3).differs_from(mended.train(module, PLAIN, steps=3))
        if name in HARMLESS:
            assert differs == []
        elif name in LOGGED:
            assert differs == ["state"]
        else:
            assert "gradients" in differs and "losses" in differs


@pytest.mark.parametrize("outer", BOTH, ids=lambda s: f"in {s.name}")
@pytest.mark.parametrize("strategy", BOTH, ids=lambda s: s.name)
def test_repairs_hold_inside_an_outer_checkpoint_that_is_told(strategy, outer):
    for one in FAMILY:
        assert mended.repaired(one, strategy, outer=outer, steps=4) == [], one.name


@pytest.mark.parametrize("outer", BOTH, ids=lambda s: f"in {s.name}")
def test_an_outer_checkpoint_that_is_not_told_undoes_guard_and_replay(outer):
    for one in FAMILY:
        differs = mended.repaired(one, NON_REENTRANT, outer=outer, outer_told=False, steps=2)
        assert bool(differs) == (one.repair in (GUARD, REPLAY)), one.name


@pytest.mark.parametrize("strategy", BOTH, ids=lambda s: s.name)
def test_with_two_calls_before_one_backward_a_guard_is_not_enough_for_what_is_read(strategy):
    for one in FAMILY:
        if one.name == "spectral norm":  # gradients are added up in another order: equal but for rounding
            continue
        differs = mended.repaired(one, strategy, calls=2, steps=3)
        if one.repair == GUARD and lesson.verdict(one) == "also read":
            assert "gradients" in differs, one.name
        else:
            assert differs == (["state"] if one.name == "last value, overwritten" else []), one.name


@pytest.mark.parametrize("calls", (1, 2))
@pytest.mark.parametrize("strategy", BOTH, ids=lambda s: s.name)
def test_what_replay_mends_without_touching_the_code(strategy, calls):
    for one in FAMILY:
        module = one.faulty()
        plain = mended.train(module, PLAIN, steps=3, calls=calls)
        differs = mended.train(
            module, lesson.with_context(strategy, state_replayed(module)), steps=3, calls=calls
        ).differs_from(plain)
        if one.name.startswith("hook"):  # their state hangs on a function, where it is not found
            assert "state" in differs
        elif strategy is REENTRANT and (one.name == "collected loss" or (calls == 2 and one.repair == NO_CACHE)):
            assert "gradients" in differs  # replayed are values; a graph that was never made is not
        elif calls == 1 or one.name != "spectral norm":
            assert differs == [], one.name


@pytest.mark.parametrize("strategy", BOTH, ids=lambda s: s.name)
def test_spectral_norm_twice_per_step_is_replayed_up_to_rounding(strategy):
    module = SpectrallyNormed()
    a = mended.train(module, PLAIN, steps=3, calls=2)
    b = mended.train(module, lesson.with_context(strategy, state_replayed(module)), steps=3, calls=2)
    for plain, other in zip(a.gradients, b.gradients, strict=True):
        for name in plain:
            torch.testing.assert_close(other[name], plain[name], rtol=1e-4, atol=1e-4)
    frozen = mended.train(module, lesson.with_context(strategy, frozen_in_recomputation(module)), steps=3, calls=2)
    name = "first.parametrizations.weight.original"
    assert (frozen.gradients[0][name] - a.gradients[0][name]).norm() > 1e-3 * a.gradients[0][name].norm()


@pytest.mark.parametrize("strategy", BOTH, ids=lambda s: s.name)
def test_evaluation_mode_in_the_recomputation_mends_spectral_norm_and_breaks_batchnorm(strategy):
    module = SpectrallyNormed()
    frozen = lesson.with_context(strategy, frozen_in_recomputation(module))
    assert mended.train(module, frozen).differs_from(mended.train(module, PLAIN)) == []
    norm = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.BatchNorm1d(16), torch.nn.Tanh())
    frozen = lesson.with_context(strategy, frozen_in_recomputation(norm))
    result = divergence(norm, lesson.rows(), strategy=frozen)
    assert result.raised is not None or result.worst > 0.1


@pytest.mark.parametrize("strategy", BOTH, ids=lambda s: s.name)
def test_the_order_of_read_and_write_decides_which_repair_works(strategy):
    everything = ["losses", "gradients", "state"]
    for calls in (1, 2):
        table = mended.repairs_by_order(strategy, calls)
        assert table["written only"] == {
            "none": ["state"],
            "guard in the code": [],
            "written to copies": [],
            "state replayed": [],
        }
        assert table["read, then written"] == dict.fromkeys(mended.REPAIRS[:3], everything) | {"state replayed": []}
        assert table["written, then read"] == {
            "none": everything,
            "guard in the code": [] if calls == 1 else everything,
            "written to copies": everything,
            "state replayed": [],
        }


class Broken(Exception):
    pass


def _raising_in(number, module):
    """Raises in the middle of the segment's call of that number, from 1."""
    runs = []

    def hook(part, args, output):
        runs.append(1)
        if len(runs) == number:
            raise Broken

    part = next(part for part in module.modules() if isinstance(part, torch.nn.Linear))
    return part.register_forward_hook(hook)


@pytest.mark.parametrize("number", (1, 2), ids=("in the forward", "in the recomputation"))
@pytest.mark.parametrize("strategy", BOTH, ids=lambda s: s.name)
@each
def test_after_an_exception_in_either_pass_all_goes_on_as_without_checkpointing(name, strategy, number):
    one = specimen(name)
    trainings = []
    for checkpointed in (False, True):
        module = one.repaired()
        context = one.context(module) if one.context else None
        way = lesson.with_context(strategy, context) if checkpointed else PLAIN
        module.begin_step()
        if number == 1 or checkpointed:
            with _raising_in(number, module), pytest.raises(Broken):
                mended.one_step(module, way, step=0)
        else:  # the plain run that corresponds: a forward whose backward came to nothing
            module(lesson.rows(0), *module.arguments(0, lesson.ROWS))
        assert not recomputing()
        module.zero_grad()
        trainings.append(mended.train(module, way, steps=3))
    assert trainings[1].differs_from(trainings[0]) == []


def test_the_state_after_a_recomputation_that_raised_is_the_forward_s():
    module = WarmedUp()
    with _raising_in(2, module), pytest.raises(Broken):
        way = lesson.with_context(NON_REENTRANT, state_replayed(module))
        way(module, lesson.rows()).sum().backward()
    assert module.calls == 1


def test_evaluation_and_a_second_context_leave_no_announcement_behind():
    _, recomputation = announced()
    with recomputation:
        assert recomputing()
        with recomputation:
            assert recomputing()
        assert recomputing()
    assert not recomputing()


# --- Instruments of the lesson


def test_times_written_counts_plain_forwards():
    class Thrice(Counted):
        def forward(self, x):
            self.calls += 1 if self.training else 0
            return super().forward(x)

    x = lesson.rows()
    assert lesson.times_written(Counted(), x, strategy=PLAIN) == 1
    assert lesson.times_written(Counted(), x, strategy=NON_REENTRANT) == 2
    assert lesson.times_written(Thrice(), x, strategy=NON_REENTRANT) == 2

    class InPart(Counted):
        """Counts at the top and at the end, where early stop does not come."""

        def forward(self, x):
            output = super().forward(x)
            self.calls += 1
            return output

    module = InPart()
    assert lesson.times_written(module, x, strategy=NON_REENTRANT) is None and module.calls == 0


def test_a_draw_is_no_reading_of_state():
    module = torch.nn.Dropout()
    assert not lesson.also_read(_with_terms(module), lesson.rows())


def _with_terms(module):
    module.terms = lambda outputs: (outputs, [])
    return module


def test_training_leaves_the_module_as_it_was():
    module = kept_things.Routed()
    before = {name: p.clone() for name, p in module.named_parameters()}
    first = mended.train(module, NON_REENTRANT, steps=2)
    assert all(torch.equal(p, before[name]) and p.grad is None for name, p in module.named_parameters())
    assert module.losses == [] and len(first.losses) == 2
    assert first.differs_from(mended.train(module, NON_REENTRANT, steps=2)) == []


def test_a_context_reaches_both_implementations_and_not_the_plain_run():
    seen = []

    def segment(x):
        seen.append(recomputing())
        return torch.sin(x)

    for strategy in (PLAIN, *ALL):
        seen.clear()
        weighted_sum(lesson.with_context(strategy, announced)(segment, lesson.rows())).backward()
        assert seen == ([False] if strategy is PLAIN else [False, True])


# --- Figures


def _texts(figure):
    return [text.get_text() for axes in figure.axes for text in axes.texts]


def test_the_table_shows_each_verdict_number_and_error(found):
    made = draw.symptoms(found.values(), {name: lesson.verdict(specimen(name)) for name in NAMES})
    texts = _texts(made)
    assert {"only written", "also read", "writes nothing"} < set(texts)
    assert texts.count("2×") == 3 * 12 and texts.count("1×") == 3 * 2 and texts.count("0×") == 3
    assert texts.count("raises: metadata") == texts.count("raises: count") == 2 and texts.count("1 missing") == 1
    labels = [label.get_text() for label in made.axes[0].get_yticklabels()]
    assert sorted(labels) == sorted(NAMES) and labels[0] == "counter, logged"
    hatched = [p for p in made.axes[0].patches if p.get_hatch()]
    assert len(hatched) == 3 * 12 + 3 * 7 + 3 + 4  # states; silent everywhere; under reentrant alone; raised
    assert len(png(made)) > 10_000


def test_the_table_refuses_what_is_no_table(found):
    cells = list(found.values())
    verdicts = dict.fromkeys(NAMES, "also read")
    with pytest.raises(ValueError, match="rows, all with the same columns"):
        draw.symptoms([], verdicts)
    with pytest.raises(ValueError, match="rows, all with the same columns"):
        draw.symptoms(cells[:-1], verdicts)
    with pytest.raises(ValueError, match="two cells for counter, logged"):
        draw.symptoms([*cells, cells[0]], verdicts)
    with pytest.raises(ValueError, match="no verdict on hook that logs"):
        draw.symptoms(cells, {n: v for n, v in verdicts.items() if n != "hook that logs"})


def test_the_placement_shows_where_the_second_pass_ends():
    saved = {place: lesson.saved_tensors(place) for place in PLACES}
    before = {place: n for place, (_, n) in saved.items()}
    table = lesson.placement()
    made = draw.placement(table, saved[PLACES[0]][0], before)
    texts = _texts(made)
    assert texts.count("2") == 8 and texts.count("1") == 4
    dashed = [line for line in made.axes[0].lines if line.is_dashed()]
    ends = [line.get_xdata()[1] for line in dashed]
    assert ends == [6.0, 5, 6.0]
    with pytest.raises(ValueError, match="between or behind 2 saved tensors"):
        draw.placement(table, ["linear", "tanh"], before)
    with pytest.raises(ValueError, match="same columns"):
        draw.placement({}, ["linear"], {})


def test_every_specimen_is_different_from_its_repair_or_says_why():
    for one in FAMILY:
        assert (one.faulty == one.repaired) == (one.repair in (REPLAY, NONE)), one.name
        assert (one.context is not None) == (one.repair in (GUARD, REPLAY)), one.name
