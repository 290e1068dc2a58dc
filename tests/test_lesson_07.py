"""Lesson 07: what its evaluations do under real and staged noise."""

import functools
import inspect

import pytest
import torch
from answers.lesson_07 import BLOTTED, RUNS, NoMean, changed

from recompute_lab.instruments.determinism import switched
from recompute_lab.instruments.nondeterminism import StagedRace, atomics_differ
from recompute_lab.lessons import evaluation_exercises as exercises
from recompute_lab.lessons import evaluations as lesson
from recompute_lab.lessons.exercise import WRONG
from recompute_lab.specimens import evaluations, unknown_evaluations
from recompute_lab.specimens.digit_scorer import DigitScorer, held_out, scorer
from recompute_lab.specimens.unknown_evaluations import Queued
from recompute_lab.views import evaluations as draw
from recompute_lab.views.style import png


@functools.cache
def table():
    return lesson.table()


# --- The model and its evaluations


def test_the_model_reads_digits_it_has_not_seen_and_never_by_a_hair():
    patches, labels = held_out()
    assert len(labels) == 899
    with torch.no_grad():
        scores = scorer()(patches)
    assert (scores.argmax(1) == labels).float().mean() > 0.9
    first, second = scores.topk(2).values.unbind(1)
    assert (first - second).min() > 1e-5, "no argmax may hang on a rounding, on any machine"


def test_the_model_is_the_same_in_every_copy_and_batch():
    patches, _ = held_out()
    one, two = scorer(), scorer()
    assert one is not two and all(map(torch.equal, one.state_dict().values(), two.state_dict().values()))
    with torch.no_grad():
        whole, parts = one(patches), torch.cat([two(rows) for rows in patches.split(100)])
    assert torch.allclose(whole, parts, atol=1e-5)
    blank = torch.zeros(1, 16, 4)
    assert torch.equal(one(blank)[0], one.offset)


def test_a_refitted_model_has_the_same_bits():
    from recompute_lab.specimens.digits import digit_sequences

    patches, labels = digit_sequences()
    again = DigitScorer().fit(patches[:898], labels[:898])
    assert all(map(torch.equal, again.state_dict().values(), scorer().state_dict().values()))


@pytest.mark.parametrize("name", ["mean loss", "threshold", "early exit", "filter"])
def test_a_race_shows_without_the_switch_and_not_with_it(name):
    found = table()[name]
    assert found.agrees and not found.without_switch.agrees and found.reasons == []
    jumped = [metric.name for metric in found.without_switch.differing if not metric.by_rounding]
    assert bool(jumped) == (name != "mean loss")


@pytest.mark.parametrize("name", lesson.OTHERS)
def test_what_is_no_function_of_its_arguments_disagrees_with_the_switch(name):
    found = table()[name]
    assert not found.agrees and not found.without_switch.agrees and found.reasons
    assert all(reason.proven for reason in found.reasons) == (name != "the order of a set")
    assert found.where.startswith("evaluations.py:")


@pytest.mark.parametrize("name", lesson.faulty())
def test_rounding_decides_the_faulty_one_and_not_the_repaired(name):
    assert lesson.decided_by_rounding(lesson.faulty()[name])
    assert lesson.decided_by_rounding(lesson.repaired()[name]) == []


def test_a_repair_keeps_the_number_where_nothing_was_near():
    """At a level between two confidences, and with probabilities that all sum up to less than one."""
    model, (patches, labels) = scorer(), held_out()
    confidence = evaluations.probabilities(model, patches).amax(1).sort().values
    gap = (confidence[1:] - confidence[:-1]).argmax()
    level = float((confidence[gap] + confidence[gap + 1]) / 2)
    both = [each(model, patches, labels, level) for each in (evaluations.selective, evaluations.selective_with_room)]
    assert both[0] == both[1]
    lower = [each(model, patches, labels, lambda sums: sums - 0.1)
             for each in (evaluations.valid_only, evaluations.valid_up_to_rounding)]  # fmt: skip
    assert lower[0] == lower[1] and lower[0]["counted"] == len(labels)
    errors = [each(model, patches, labels)["scale"] for each in (evaluations.calibrated, evaluations.calibrated_for)]
    assert errors[0] == pytest.approx(errors[1], rel=2e-3)


def test_real_races_move_the_filter_and_not_the_accuracy_on_all_digits(two_threads):
    if not atomics_differ():
        pytest.skip("additions do not race here: one thread is all that torch has")
    free, fixed = lesson.repeated("filter", times=100)
    assert len({run["counted"] for run in free}) > 1 and len({str(run) for run in fixed}) == 1
    with switched(False):
        whole = {evaluations.mean_loss(scorer(), *held_out())["accuracy"] for _ in range(20)}
    assert len(whole) == 1


def test_the_same_filter_is_loud_in_a_segment():
    found = lesson.in_a_segment()
    assert found.raised is not None and found.outcome == "metadata"


def test_how_near_the_values_are():
    near = {name: sum(abs(d) <= lesson.NEAR for d in values) for name, values in lesson.distances().items()}
    assert near["filter"] == 899 and near["threshold"] == 1 and near["class"] == 0 and near["early exit"] > 0


def test_other_kernels_agree_with_themselves():
    filtered, again, whole = lesson.with_kernels("default")
    assert filtered == again and 0 < filtered["counted"] < 899
    assert whole["accuracy"] == evaluations.mean_loss(scorer(), *held_out())["accuracy"]


def test_the_order_of_a_set_of_strings_is_the_processs():
    words = ["cat", "dog", "bird", "fish", "horse", "cow"]
    first, second = lesson.orders(words)
    assert sorted(first) == sorted(second) == sorted(words) and first != second
    assert lesson.orders(words, (1, 1))[0] == second


def test_the_figures_are_drawn_and_refuse_nothing():
    assert png(draw.repetitions({"a": ([0.1, 0.2], [0.1, 0.1]), "b": ([3, 3], [3, 3])})).startswith(b"\x89PNG")
    assert png(draw.around({"a": [0, 1, -40], "b": [100]})).startswith(b"\x89PNG")
    for wrong in ({}, {"a": ([], [1])}):
        with pytest.raises(ValueError):
            draw.repetitions(wrong)
    with pytest.raises(ValueError):
        draw.around({"a": []})


def test_a_source_that_is_not_there_is_refused():
    assert "class Warm" in unknown_evaluations.source("C")
    with pytest.raises(ValueError, match="there is A, B, C, D, E"):
        unknown_evaluations.source("F")


def test_a_staged_race_counts_its_calls_and_obeys_the_switch():
    race, x = StagedRace({2: 1}), torch.ones(3)
    assert torch.equal(race(x), x) and not torch.equal(race(x), x) and race.pass_number == 2
    with switched(True):
        assert race(x) is x


# --- Exercises


def test_the_clean_digits_are_such_that_the_running_mean_matters():
    for patches, labels in exercises._clean().values():
        assert Queued()(scorer(), patches, labels)["drift"] > 0
        if len(labels) <= 100:
            assert Queued()(scorer(), patches, labels)["accuracy"] < NoMean()(scorer(), patches, labels)["accuracy"]
    assert "uuid" in inspect.getsource(Queued)


def test_on_copies_of_one_digit_the_original_has_no_order():
    (data,) = (data for data in exercises._clean().values() if len(data[1]) > 100)
    first, second = (Queued()(scorer(), *data) for _ in range(2))
    assert first == pytest.approx(second, rel=1e-5)


def test_an_average_of_two_runs_still_has_the_confound_in_it():
    verdict = exercises.check.findings.judge(changed(BLOTTED, after=sum(RUNS[BLOTTED]) / 2))
    assert verdict.status == WRONG and "An average still has the confound in it" in verdict.message
