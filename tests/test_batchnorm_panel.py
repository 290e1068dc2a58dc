"""Lesson 05's panel: what it says is what the runs did, at every momentum, drift, implementation and repair."""

import io
from itertools import product

import pytest
from matplotlib.text import Text
from PIL import Image

from recompute_lab.instruments.checkpointing import PLAIN
from recompute_lab.lessons import batchnorm_panel as lesson
from recompute_lab.lessons.batchnorm import WAYS, Deviation
from recompute_lab.lessons.batchnorm_panel import measure, panel
from recompute_lab.specimens.batchnorm_training import BatchNormRun, Settings
from recompute_lab.views.batchnorm_panel import (
    DRIFTS,
    IMPLEMENTATIONS,
    MOMENTA,
    REPAIRS,
    STEPS,
    BatchNormPanel,
    Case,
    Course,
    courses,
    sentence,
)
from recompute_lab.views.style import styled

RECIPES, WHOLE = REPAIRS[1:3], REPAIRS[3:]
BOTH = pytest.mark.parametrize("implementation", IMPLEMENTATIONS)


def quick(momentum=0.1, drift=1, implementation="non-reentrant", repair="none"):
    return measure(momentum, 20, drift, implementation, repair)


def texts(made) -> list[str]:
    return [t.get_text() for t in made.findobj(Text) if t.get_text()]


# What is measured, and what is said of it


@BOTH
@pytest.mark.parametrize("momentum", [0.01, 0.1, 0.5])
def test_without_a_repair_there_are_two_runs_that_differ_in_statistics_alone(implementation, momentum):
    case = quick(momentum, implementation=implementation)
    assert list(case.runs) == ["plain", "checkpointed"] and case.same_gradients and not case.same_statistics
    off = case.deviations["checkpointed"]
    assert off.worst > 0.01 and (off.tracked, off.expected) == (40, 20)
    said = sentence(case)
    assert said.startswith(
        f"Checkpointed, 40 batches are counted in 20 steps and the statistics are off by up to {off.worst:.2g};"
    )
    assert "losses and gradients are the plain run's, bit for bit. Errors at the end: plain " in said
    assert "Repair" not in said and said.endswith("%.")


@BOTH
def test_momentum_none_is_right_up_to_rounding_and_the_counter_is_not(implementation):
    case = quick(None, implementation=implementation)
    assert "40 batches are counted in 20 steps and the statistics are right up to rounding" in sentence(case)
    assert case.runs["plain"].errors == case.runs["checkpointed"].errors


@BOTH
@pytest.mark.parametrize("momentum", [0.01, 0.1, 0.5])
def test_the_recipes(implementation, momentum):
    root, right = (quick(momentum, 1, implementation, repair) for repair in RECIPES)
    assert root.deviations["repaired"].worst > root.deviations["checkpointed"].worst
    assert "Repair (sqrt(m)): the statistics are off by up to " in sentence(root)
    assert right.deviations["repaired"].worst < 1e-5 and not right.same_statistics
    told = "Repair (1 - sqrt(1 - m)): the statistics are right up to rounding; the counter still says 40."
    assert told in sentence(right)
    assert right.same_gradients and root.same_gradients


@BOTH
@pytest.mark.parametrize("momentum", [0.1, None])
@pytest.mark.parametrize("repair", WHOLE)
def test_whole_repairs_are_the_plain_run_in_every_bit(implementation, momentum, repair):
    case = quick(momentum, 4, implementation, repair)
    assert case.deviations["repaired"] == Deviation(0.0, 0.0, 20, 20) and case.same_statistics and case.same_gradients
    assert case.runs["repaired"] == case.runs["plain"]
    assert f"Repair ({repair}): the statistics are the plain run's, bit for bit; the counter is right." in sentence(
        case
    )


def test_curves_are_those_of_a_run_of_its_own():
    own = BatchNormRun(Settings(20, momentum=0.1, drift=4), WAYS["reentrant"]).train(range(2, 21, 2))
    shown = quick(0.1, 4, "reentrant").runs["checkpointed"]
    kept = [own.start["norm2"], *(step.statistics["norm2"] for step in own.history)]
    assert shown.mean == [float(each.mean[lesson.CHANNEL]) for each in kept] and len(shown.mean) == 21
    assert shown.variance == [float(each.variance[lesson.CHANNEL]) for each in kept]
    assert shown.errors == {e.step: e.error for e in own.evaluations} and list(shown.errors) == list(range(2, 21, 2))


def test_every_checkpointed_curve_comes_from_a_segment_that_ran_again(monkeypatch):
    ran = []

    class Counted(BatchNormRun):
        def train(self, *args):
            self.net.segment.conv1.register_forward_pre_hook(lambda *_: ran.append(self.net.training))
            ran.clear()
            done = super().train(*args)
            seen.append(sum(ran))
            return done

    seen = []
    monkeypatch.setattr(lesson, "BatchNormRun", Counted)
    lesson._run.cache_clear()
    for implementation, repair in product(IMPLEMENTATIONS, REPAIRS):
        quick(0.3, 0, implementation, repair)
    lesson._run.cache_clear()
    assert seen == [20] + [40] * (len(seen) - 1) and len(seen) == 1 + 2 * len(REPAIRS)


def test_what_cannot_be_measured_is_refused_in_a_sentence():
    with pytest.raises(ValueError, match="no such run: eager, none. Implementations are: reentrant, non-reentrant;"):
        measure(implementation="eager")
    with pytest.raises(ValueError, match="no such run: reentrant, prayer"):
        measure(implementation="reentrant", repair="prayer")
    for repair in RECIPES:
        with pytest.raises(ValueError, match="needs a number: with momentum None there is no m"):
            quick(None, repair=repair)


def test_gradients_that_part_are_told_as_well():
    course = Course([0.0], [1.0], {1: 0.5})
    off = {"checkpointed": Deviation(1.0, 2.0, 2, 1)}
    case = Case(1, "none", {"plain": course, "checkpointed": course}, off, False, False)
    assert "off by up to 2; losses and gradients are not the plain run's." in sentence(case)


# The figure


def test_the_figure_shows_three_courses():
    case = quick(repair="1 - sqrt(1 - m)")
    made = courses(case)
    assert {"plain", "checkpointed", "repaired", "running mean, one channel", "errors in eval mode"} <= set(texts(made))
    for axes, quantity in zip(made.axes, ("mean", "variance"), strict=False):
        assert [list(line.get_ydata()) for line in axes.lines] == [getattr(r, quantity) for r in case.runs.values()]
    assert [list(line.get_ydata()) for line in made.axes[2].lines] == [
        list(r.errors.values()) for r in case.runs.values()
    ]


@pytest.mark.parametrize("momentum, repair", [(0.1, "none"), (0.1, "sqrt(m)"), (0.5, "boundary moved"), (None, "none")])
def test_no_text_of_the_figure_is_small_or_off_the_card(momentum, repair):
    made = courses(quick(momentum, 4, repair=repair))
    styled(made.draw_without_rendering)()
    width, height = made.get_size_inches()
    used = made.get_tightbbox()  # in inches; labels of ticks that are out of sight do not count
    assert used.x0 >= 0 and used.x1 <= width + 0.01 and used.y0 >= 0 and used.y1 <= height + 0.01
    assert all(text.get_fontsize() >= 8 for text in made.findobj(Text) if text.get_text())


# The panel


def asked_of(given):
    asked = []
    return asked, BatchNormPanel(lambda *of: asked.append(of) or given(*of))


def small(momentum, steps, drift, implementation, repair):
    """As `measure`, but always of few steps, so that a panel is tested in little time."""
    return measure(momentum, 20, 1, implementation, repair)


def test_the_panel_starts_without_a_repair_and_has_labels():
    fresh = panel()
    assert fresh.message == sentence(measure()) and "80 batches are counted in 40 steps" in fresh.message
    controls = (fresh.momentum, fresh.steps, fresh.drift, fresh.implementation, fresh.repair)
    assert [control.description for control in controls] == [
        "Momentum m",
        "Steps",
        "Drift of the light",
        "Implementation",
        "Repair",
    ]
    assert [v for _, v in fresh.momentum.options] == list(MOMENTA) and list(fresh.repair.options) == list(REPAIRS)
    assert list(fresh.steps.options) == list(STEPS) and [v for _, v in fresh.drift.options] == list(DRIFTS)
    assert Image.open(io.BytesIO(fresh.picture.value)).size == (1134, 445)
    assert repr(fresh) == "Panel with momentum, steps, drift, implementation, repair: run this cell to use it."


def test_each_combination_is_measured_once():
    asked, shown = asked_of(small)
    assert asked == [(0.1, 40, 1, "non-reentrant", "none")]
    first = shown.picture.value, shown.message
    shown.repair.value = "boundary moved"
    assert shown.message != first[1] and shown.picture.value != first[0]
    shown.repair.value = "none"
    assert (shown.picture.value, shown.message) == first and len(asked) == 2
    shown.momentum.value, shown.steps.value, shown.drift.value = 0.5, 20, 4
    assert asked[-1] == (0.5, 20, 4, "non-reentrant", "none") and len(asked) == 5


def test_a_recipe_for_no_momentum_is_a_sentence_and_the_way_back_works():
    _, shown = asked_of(small)
    first = shown.picture.value, shown.message
    shown.repair.value = "sqrt(m)"
    shown.momentum.value = None
    assert shown.message.startswith("sqrt(m) needs a number: with momentum None there is no m.")
    shown.repair.value = "none"
    assert "right up to rounding" in shown.message
    shown.momentum.value = 0.1
    assert (shown.picture.value, shown.message) == first


def test_the_same_run_is_taken_once_for_all_repairs():
    lesson._run.cache_clear()
    quick(0.2)
    quick(0.2, repair="boundary moved")
    quick(0.2, implementation="reentrant")
    assert lesson._run.cache_info().misses == 4  # plain, checkpointed, repaired, the other implementation
    assert WAYS["plain"] is PLAIN
