"""Lesson 05's measurements of BatchNorm: counters, momenta, situations, the cumulative average; their figures."""

import math

import pytest
import torch
from matplotlib.text import Text
from torch import nn

from recompute_lab.instruments.checkpointing import NO_EARLY_STOP, NON_REENTRANT, PLAIN, REENTRANT
from recompute_lab.instruments.estimates import Interval
from recompute_lab.lessons import batchnorm as lesson
from recompute_lab.lessons.batchnorm import Deviation
from recompute_lab.repairs.momentum import momentum_for
from recompute_lab.specimens.batchnorm_training import Statistics
from recompute_lab.views import batchnorm as views

ROUNDING = 1e-5
BOTH = pytest.mark.parametrize("way", lesson.TORCHS)
MOMENTA = pytest.mark.parametrize("m", [0.01, 0.1, 0.5])


@pytest.fixture(scope="module")
def found() -> dict:
    """Per implementation, every situation with the corrected momentum, with m itself, and with None."""
    return {
        way: {
            "corrected": lesson.situations(way, steps=10),
            "m": lesson.situations(way, steps=10, corrected=False),
            "None": lesson.situations(way, None, steps=10),
        }
        for way in lesson.TORCHS
    }


# Side by side


def test_trained_side_by_side_only_statistics_differ():
    runs = lesson.train(steps=8)
    taken = [[(step.loss, step.gradients) for step in run.history] for run in runs.values()]
    assert taken[0] == taken[1] == taken[2]
    assert [run.history[-1].statistics["norm1"].tracked for run in runs.values()] == [8, 16, 16]
    for way in lesson.TORCHS:
        apart = lesson.deviation(runs[way], runs["plain"])
        assert apart.mean > 0.01 and apart.variance > 0.01 and (apart.tracked, apart.expected) == (16, 8)
    assert lesson.deviation(runs["reentrant"], runs["non-reentrant"]) == Deviation(0.0, 0.0, 16, 16)


def test_a_deviation_is_the_largest_of_all_steps_names_and_channels():
    def kept(mean, variance, tracked):
        return Statistics(torch.tensor(mean), torch.tensor(variance), tracked)

    one = [{"a": kept([0.0, 1.0], [1.0, 1.0], 1)}, {"a": kept([0.0, 3.0], [1.0, 1.0], 2)}]
    two = [{"a": kept([0.0, 6.0], [1.0, 1.0], 2)}, {"a": kept([0.5, 3.0], [1.0, 0.25], 4)}]
    assert Deviation.of(two, one) == Deviation(5.0, 0.75, 4, 2) and Deviation.of(two, one).worst == 5.0
    assert Deviation.of(two[1:], one[1:]) == Deviation(0.5, 0.75, 4, 2)
    for other in (one[:1], [], [{"b": one[0]["a"]}] * 2):
        with pytest.raises(ValueError, match="the same BatchNorms after the same steps"):
            Deviation.of(two, other)


def test_a_training_is_another_one_by_its_steps_or_its_weights():
    a, b = (lesson.train(2, ways=["plain"])["plain"] for _ in range(2))
    assert lesson.trained_alike(a, b)
    assert not lesson.trained_alike(a, lesson.train(2, seed=1, ways=["plain"])["plain"])
    with torch.no_grad():
        b.net.head.bias[0] += 1
    assert not lesson.trained_alike(a, b)


def test_courses_start_before_the_first_step_and_the_batches_own_at_it():
    runs, own = lesson.train(3), lesson.train(3, momentum=1.0, ways=["plain"])["plain"]
    panels = lesson.courses(runs, own)
    assert list(panels) == ["running mean, one channel", "running variance, one channel"]
    for panel, start in zip(panels.values(), (0.0, 1.0), strict=True):
        assert list(panel) == [*runs, "batch"]
        assert all(panel[name][0] == start and len(panel[name]) == 4 for name in runs) and len(panel["batch"]) == 3
        first = 0.9 * start + 0.1 * panel["batch"][0]  # the definition of the momentum
        assert panel["plain"][1] == pytest.approx(first, rel=1e-4)
        assert panel["reentrant"][1] == pytest.approx(0.9 * first + 0.1 * panel["batch"][0], rel=1e-4)


# Momenta


@BOTH
@MOMENTA
def test_two_updates_with_m_act_like_one_with_another_momentum(way, m):
    """1 - (1 - m)^2: a checkpointed run is, for its statistics, a plain run with a larger momentum."""
    checkpointed = lesson.train(12, m, ways=[way])[way]
    plain = lesson.train(12, 1 - (1 - m) ** 2, ways=["plain"])["plain"]
    apart = lesson.deviation(checkpointed, plain)
    assert apart.worst < ROUNDING and (apart.tracked, apart.expected) == (24, 12)


@BOTH
@MOMENTA
def test_of_the_recipes_one_is_right_to_rounding_and_the_square_root_is_worse_than_none(way, m):
    rows = lesson.recipes(way, m, steps=12)
    assert set(rows) == set(lesson.RECIPES)
    right = rows["1 - sqrt(1 - m)"]
    assert 0 < right.worst < ROUNDING
    assert rows["m"].mean > 1000 * ROUNDING and rows["m"].variance > 1000 * ROUNDING
    assert rows["sqrt(m)"].mean > rows["m"].mean and rows["sqrt(m)"].variance > rows["m"].variance
    assert all((row.tracked, row.expected) == (24, 12) for row in rows.values())


def test_the_square_root_is_right_where_momentum_is_the_share_that_is_kept():
    """Keras' convention. There, two updates that keep sqrt(d) keep d."""
    kept = 0.9
    torchs = 1 - math.sqrt(kept)
    assert torchs == pytest.approx(momentum_for(1 - kept))


# Situations


@BOTH
def test_the_formula_holds_where_each_forward_has_its_backward(found, way):
    row = found[way]["corrected"]["forward, backward"]
    assert 0 < row.worst < ROUNDING and (row.tracked, row.expected) == (20, 10)
    assert found[way]["m"]["forward, backward"].worst > 0.1


@BOTH
@pytest.mark.parametrize(
    ("situation", "least", "counted"),
    [
        ("two forwards, then two backwards", 3e-5, (40, 20)),
        ("the same, of two kinds of images", 5e-4, (40, 20)),
        ("two kinds, one backward of their sum", 1e-3, (40, 20)),
        ("also used outside a checkpoint", 1e-2, (30, 20)),
        ("a second forward without a backward", 1e-2, (30, 20)),
        ("one forward, backward twice", 1e-2, (30, 10)),
    ],
)
def test_the_formula_does_not_hold(found, way, situation, least, counted):
    row = found[way]["corrected"][situation]
    assert row.mean > least and row.variance > least and (row.tracked, row.expected) == counted


def test_what_early_stop_spares_is_right_without_a_repair_and_wrong_with_it(found):
    name = "behind the last saved tensor"
    assert found["non-reentrant"]["m"][name] == Deviation(0.0, 0.0, 10, 10)
    wrong = found["non-reentrant"]["corrected"][name]
    assert wrong.mean > 0.01 and wrong.variance > 0.01 and (wrong.tracked, wrong.expected) == (10, 10)
    twice = found["reentrant"]["corrected"][name]
    assert twice.worst < ROUNDING and twice.tracked == 20


@pytest.mark.parametrize("strategy", [REENTRANT, NON_REENTRANT], ids=lambda s: s.name)
@pytest.mark.parametrize("m", [0.1, 0.5])
@pytest.mark.parametrize("together", [False, True])
def test_two_forwards_before_backward_err_by_a_known_share_of_the_batches_difference(strategy, m, together):
    """With q = sqrt(1 - m): q (1 - q)^2 of it if the first forward's backward comes first, else (1 + q) (1 - q)^2."""
    q = math.sqrt(1 - m)
    norm = nn.BatchNorm1d(4, momentum=momentum_for(m))
    generator = torch.Generator().manual_seed(0)
    a, b = ((torch.randn(16, 4, generator=generator) + shift).requires_grad_() for shift in (0, 3))
    outputs = [strategy(lambda x: torch.tanh(norm(x)), x).sum() for x in (a, b)]
    if together:
        sum(outputs).backward()
    else:
        for output in outputs:
            output.backward()
    plain = nn.BatchNorm1d(4, momentum=m)
    plain(a), plain(b)
    share = (1 - q) ** 2 * ((1 + q) if together else q)
    apart = (norm.running_mean - plain.running_mean, norm.running_var - plain.running_var)
    batches = (a.mean(0) - b.mean(0), a.var(0) - b.var(0))
    for gap, difference in zip(apart, batches, strict=True):
        torch.testing.assert_close(gap, share * difference.detach(), atol=1e-5, rtol=0)


def test_an_unknown_situation_is_refused():
    with pytest.raises(ValueError, match="'three forwards' is none of: forward, backward, two forwards"):
        lesson.statistics_in("three forwards", PLAIN, 0.1)


# The cumulative average


@pytest.fixture(scope="module")
def cumulative() -> dict:
    return {way: lesson.cumulative(way) for way in lesson.TORCHS}


@BOTH
def test_the_cumulative_average_comes_out_right_after_every_backward(cumulative, way):
    case = cumulative[way]
    assert case.first == Deviation(0.0, 0.0, 2, 1)  # bit for bit: b, then b/2 + b/2
    assert 0 < case.later.worst < 1e-6 and (case.later.tracked, case.later.expected) == (40, 20)


@BOTH
def test_between_forward_and_backward_it_is_wrong(cumulative, way):
    assert cumulative[way].between.mean > 1e-3 and cumulative[way].between.variance > 1e-3


@BOTH
def test_it_is_wrong_where_some_batches_count_once_and_others_twice(cumulative, way):
    case = cumulative[way]
    for wrong in (case.resumed, case.back):
        assert wrong.mean > 1e-3 and wrong.variance > 1e-3 and (wrong.tracked, wrong.expected) == (30, 20)
    assert case.expected.worst < 1e-6 and case.expected.tracked == case.expected.expected == 30


@BOTH
def test_equal_numbers_of_updates_cancel_in_any_order(found, way):
    for name in (
        "two forwards, then two backwards",
        "two kinds, one backward of their sum",
        "one forward, backward twice",
    ):
        row = found[way]["None"][name]
        assert row.worst < 1e-6 and row.tracked > row.expected
    for name in ("also used outside a checkpoint", "a second forward without a backward"):
        assert found[way]["None"][name].mean > 1e-3


# Nesting


def test_updates_by_depth():
    deep, twice = {d: d + 1 for d in range(5)}, {0: 1, 1: 2, 2: 2, 3: 2, 4: 2}
    for behind in (False, True):
        assert lesson.updates_by_depth(REENTRANT, behind=behind) == deep
        assert lesson.updates_by_depth(NO_EARLY_STOP, behind=behind) == deep
    assert lesson.updates_by_depth(NON_REENTRANT) == twice
    assert lesson.updates_by_depth(NON_REENTRANT, behind=True) == deep


@MOMENTA
def test_the_formula_for_a_depth_is_right_to_rounding_where_there_are_as_many_updates(m):
    for strategy, behind in ((REENTRANT, False), (REENTRANT, True), (NON_REENTRANT, True)):
        rows = lesson.nested_deviations(strategy, m, behind=behind)
        assert [row.tracked for row in rows.values()] == [20, 40, 60, 80, 100]
        assert all(row.worst < ROUNDING and row.expected == 20 for row in rows.values())
    rows = lesson.nested_deviations(NON_REENTRANT, m)  # nothing behind: two updates, whatever the depth
    assert rows[1].worst < ROUNDING and all(rows[depth].worst > 1e-3 for depth in (2, 3, 4))


# Figures


def texts(made) -> set[str]:
    return {t.get_text() for t in made.findobj(Text)}


def test_the_figure_of_trajectories_names_runs_and_draws_what_it_is_given():
    made = views.trajectories(
        {"running mean": {"batch": [2.0, 3.0], "plain": [0.0, 1.0, 2.0], "reentrant": [0.0, 2.0, 3.0]}}
    )
    batch, plain, reentrant = made.axes[0].lines
    assert list(batch.get_xdata()) == [1, 2] and list(plain.get_xdata()) == [0, 1, 2]
    assert list(plain.get_ydata()) == [0, 1, 2] and reentrant.get_linestyle() == "None"
    assert {"running mean", "the batch's own", "plain", "reentrant"} <= texts(made)


def test_the_figure_of_evaluations_draws_medians():
    curve = [[0.5, 0.7, 0.9], [0.1, 0.2, 0.9]]
    made = views.evaluations([5, 10], {"m = 0.1": {"drift 0": {"plain": curve, "checkpointed": curve}}}, "error")
    assert list(made.axes[0].lines[0].get_ydata()) == [0.7, 0.2]
    assert {"m = 0.1", "error\ndrift 0", "plain", "checkpointed"} <= texts(made)


def test_the_figure_of_differences_fills_marks_whose_interval_excludes_zero():
    intervals = [Interval(-0.1, -0.2, -0.05), Interval(0.0, -0.1, 0.1)]
    made = views.differences([5, 10], {"m = 0.1": {"batch of 4": intervals}})
    marks = [line for line in made.axes[0].lines if line.get_marker() == "o" and len(line.get_xdata()) == 1]
    assert [line.get_markerfacecolor() == "white" for line in marks] == [False, True]
    assert {"m = 0.1", "batch of 4", "5", "10"} <= texts(made)


def test_the_figure_of_deviations_places_equal_bits_at_the_edge_and_names_counters():
    made = views.deviations({"right": Deviation(0.0, 0.0, 20, 20), "wrong": Deviation(0.1, 1e-3, 40, 20)})
    places = [line.get_xdata()[0] for line in made.axes[0].lines if line.get_marker() in ("o", "s")]
    assert places == [views.ZERO, views.ZERO, 0.1, 1e-3]
    weights = {t.get_text(): t.get_weight() for t in made.findobj(Text)}
    assert (weights["20 for 20"], weights["40 for 20"]) == ("normal", "bold") and {"right", "wrong"} <= set(weights)


def test_the_figure_of_updates_draws_every_depth():
    made = views.updates({"reentrant": {0: 1, 1: 2, 2: 3}, "non-reentrant": {0: 1, 1: 2, 2: 2}})
    assert [list(line.get_ydata()) for line in made.axes[0].lines] == [[1, 2, 3], [1, 2, 2]]
    assert {"reentrant", "non-reentrant"} <= texts(made)


@pytest.mark.parametrize("rows", [1, 8])
def test_labels_of_deviations_stay_on_the_card(rows):
    made = views.deviations(
        {f"a situation with a rather long name {i}": Deviation(1e-7, 0.1, 40, 20) for i in range(rows)}
    )
    made.draw_without_rendering()
    width, height = made.get_size_inches() * made.dpi
    for text in made.findobj(Text):
        box = text.get_window_extent()
        assert not text.get_text() or (box.x0 >= -1 and box.x1 <= width + 1 and box.y0 >= -1 and box.y1 <= height + 1)
