"""Lesson 06: the project's sites are what the lesson says, its repairs keep every bit."""

import math

import pytest
import torch
from answers.lesson_06 import TRIAGE

from recompute_lab.instruments.audit import audit
from recompute_lab.lessons import audit_exercises as exercises
from recompute_lab.lessons import audit_source as lesson
from recompute_lab.lessons.audit_exercises import check
from recompute_lab.lessons.exercise import NOT_ATTEMPTED
from recompute_lab.specimens import mended_project as mended
from recompute_lab.specimens.small_project import Config, Trainer, batch, blocks, caps, mixing
from recompute_lab.specimens.small_project.config import Switches
from recompute_lab.specimens.small_project.experts import Experts
from recompute_lab.specimens.small_project.health import rounds
from recompute_lab.specimens.small_project.model import Classifier
from recompute_lab.views import audit as draw


@pytest.fixture(scope="module")
def searched():
    return lesson.searched()


@pytest.fixture(scope="module")
def seen():
    return lesson.observed()


# The project


def test_the_project_trains_and_speaks():
    trainer = Trainer()
    losses = [trainer.step(number) for number in range(30)]
    assert all(map(math.isfinite, losses)) and sum(losses[-5:]) < sum(losses[:5])
    assert trainer.run(2) == "2 steps of 8 rows" and 0 <= trainer.evaluate() <= 1
    assert Trainer().run(0) == "no step was made"
    assert Config().described() == "3 blocks of 4 experts; on: check_scores, log_idle"
    assert Config(switches=Switches(check_scores=False, log_idle=False)).described() == "3 blocks of 4 experts"


def test_a_batch_is_padded_and_of_two_labels():
    tokens, labels = batch(Config(), seed=3, shortest=4)
    assert tokens.shape == (8, 12) and (tokens == 0).any() and len(labels.unique()) > 1
    assert not (batch(Config(), seed=3, shortest=12)[0] == 0).any()
    with pytest.raises(ValueError, match="raise `shortest`"):
        batch(Config(), seed=0, rows=64, shortest=0)


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        (torch.zeros(2, 5, dtype=torch.long), "rows have 12 places"),
        (torch.full((2, 12), 99), "token 99 is not in the vocabulary"),
    ],
)
def test_the_model_turns_down_what_it_cannot_take(tokens, message):
    with pytest.raises(ValueError, match=message):
        Trainer().model(tokens)


def test_checkpointing_the_project_changes_no_bit_while_nothing_flips():
    plain, checkpointed = lesson.trained(checkpointed=False), lesson.trained()
    assert plain.same_as(checkpointed)
    assert [2 * load for load in plain.loads] == checkpointed.loads


# What grep, audit and run see


def test_every_site_stands_in_one_line_and_forms_differ():
    assert len({site.place for site in lesson.SITES}) == len({site.form for site in lesson.SITES}) == 18
    with pytest.raises(LookupError, match="stands in 0 lines"):
        lesson.place("caps.py", "no such line")


def test_the_grep_finds_four_of_them_and_five_others(searched):
    places = {site.place for site in lesson.SITES}
    assert len(searched.by_grep & places) == 4 and len(searched.hits) == 9 and len(searched.others) == 5


def test_the_audit_finds_sixteen_and_nothing_else(searched):
    places = {site.place for site in lesson.SITES}
    assert searched.by_audit < places and len(searched.by_audit) == 16
    writes = [one for one in searched.audited.findings if one.rule == "lasting-write"]
    assert sorted(one.source for one in writes) == [
        "self.calls += 1",
        "self.hot = x.abs().amax() > self.config.hot",
        "self.load += sent",
    ]


def test_a_run_sees_what_the_audit_misses_and_misses_what_does_not_happen(searched, seen):
    missed = [site for site in lesson.SITES if site.place not in searched.by_audit]
    assert len(missed) == 2 and all(seen[site.read_at].in_a_checkpoint for site in missed)
    unread = [site.form for site in lesson.SITES if site.read_at not in seen]
    assert len(unread) == 5 and "by a helper, behind a switch" in unread and "a loop over nonzero()" in unread
    assert lesson.undecided(seen) == ["scoring.py:8", "train.py:39"]


def test_all_reads_are_of_sites_or_decide_nothing(seen):
    lines = {site.read_at for site in lesson.SITES} | {"scoring.py:8", "train.py:39"}
    assert set(seen) <= lines


def test_what_was_read_in_words(seen):
    told = {site.form: str(seen.get(site.read_at, lesson.Seen())) for site in lesson.SITES}
    assert told["a method, in the line of the if"] == "True and False"
    assert told["a ternary"] == "always True" and told["a filter"] == "True and False"
    assert told["by a helper in another file"] == "always False, in forward only"
    assert told["the same, behind a dtype"] == "not read"
    assert str(seen["train.py:39"]) == "a number"


def test_triage_narrows_to_eight(searched, seen):
    stages = lesson.triage(searched.audited, seen)
    assert [len(stage.left) for stage in stages] == [16, 12, 10, 8]
    assert "caps.py:26" in map(lesson.short, stages[-1].left), "a run saw it where the audit did not"
    assert {one.decides for one in stages[-1].aside} == {"raise", "telemetry"}
    assert all(one.guard for one in stages[2].aside)


def test_a_finding_is_shown_without_the_machines_folders(searched):
    one = lesson.finding(searched.audited, lesson.SITES[0].place)
    assert lesson.shown(one).startswith("small_project/caps.py:")
    with pytest.raises(LookupError):
        lesson.finding(searched.audited, "caps.py:1")


# Repairs


def test_the_cap_is_repaired_bit_for_bit():
    pairs = list(zip(lesson.activations(scales=(0.05, 1.0)), lesson.activations(), strict=True))
    result = lesson.compared(*lesson.twins(caps.NormCap, mended.AlwaysCapped, Config()), pairs)
    assert result.told == {True, False} and result.outputs == result.gradients == result.inputs == 40
    assert result.saved == ({0, 1}, {1})


def test_where_alone_poisons_the_gradient_and_a_safe_argument_does_not():
    inputs = [(x,) for x in lesson.activations(scales=(1.0, 0.0))]
    for repaired, right in ((mended.poisoned, 20), (mended.standardised, 40)):
        result = lesson.compared(mixing.standardised, repaired, inputs)
        assert result.told == {True, False} and result.outputs == 40 and result.gradients == right
        assert len(result.saved[0]) == 2 and len(result.saved[1]) == 1


def test_the_table_is_repaired_bit_for_bit():
    inputs = [(x,) for x in lesson.activations(scales=(0.05, 0.15, 1.0))]
    compared = lesson.compared(lambda x: blocks.Block.bent(None, x), mended.every_bend, inputs)
    assert compared.told == {0, 1, 2} and (compared.outputs, compared.gradients) == (40, 40)
    x = torch.full((3,), math.inf, requires_grad=True)
    mended.every_bend(x).sum().backward()
    assert x.grad.equal(torch.zeros(3)), "an arm that is not chosen poisons nothing"


def test_the_experts_are_repaired_bit_for_bit_and_still_route():
    inputs = [(x,) for x in lesson.activations()]
    result = lesson.compared(*lesson.twins(Experts, mended.EveryExpert, Config()), inputs)
    assert result.outputs == result.gradients == 40 and len(result.saved[0]) > 1 == len(result.saved[1])
    with pytest.raises(RuntimeError, match="no numbers"):
        mended.EveryExpert(Config())(torch.full((8, 12, 16), torch.nan))


def test_every_expert_for_every_row_is_equal_up_to_rounding():
    class Weighed(Experts):
        def forward(self, x):
            scores = self.gate(x.mean(1))
            choice, result = scores.argmax(-1), torch.zeros_like(x)
            for number, expert in enumerate(self.experts):
                result = result + torch.where((choice == number)[:, None, None], expert(x), 0.0)
            return result * scores.softmax(-1).amax(-1)[:, None, None]

    ours, theirs = lesson.twins(Experts, Weighed, Config())
    for x in lesson.activations(8):
        for a, b in zip(lesson._outcome(ours, [x]), lesson._outcome(theirs, [x]), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


def test_the_repaired_project_trains_alike_and_counts_once():
    original, plain = lesson.trained(), lesson.trained(checkpointed=False)
    with lesson.repaired_project():
        repaired = lesson.trained()
    assert repaired.same_as(original) and repaired.loads == plain.loads
    assert lesson.trained().loads == original.loads, "the project is as it was"


def test_a_repaired_file_has_no_branches_left():
    left = lesson.branches(audit(mended.__file__))
    assert left == []


@pytest.mark.parametrize(
    ("kind", "outcome"),
    [(Experts, "silent"), (mended.EveryExpert, "metadata"), (mended.ChoiceFromOutside, "fine")],
)
def test_a_route_that_flips(kind, outcome):
    """The rounds are the same for every value; the sizes of what is selected are not, until the choice is given."""
    assert lesson.flipped_route(kind).outcome == outcome


def test_a_weight_that_is_a_maximum_chooses_anew():
    class ByMaximum(mended.ChoiceFromOutside):
        def forward(self, x, choice):
            return self.dispatched(x, choice, self.gate(x.mean(1)).softmax(-1).amax(-1))

    assert lesson.flipped_route(ByMaximum).outcome == "silent"


# Figures


def test_figures_turn_down_what_they_cannot_draw():
    with pytest.raises(ValueError, match="a row at least"):
        draw.sightings([], ("grep",))
    with pytest.raises(ValueError, match="as there are|2 cells"):
        draw.sightings([draw.Row("a", "b", ((True, ""),))], ("grep", "audit"))
    with pytest.raises(ValueError, match="no question adds"):
        draw.narrowing([draw.Stage("a", 1), draw.Stage("b", 2)])


# Exercises


def test_the_truth_of_the_triage_is_the_audit_s_and_a_run_s():
    assert exercises.answers() == TRIAGE


def test_triage_unfilled():
    assert check.triage.judge(dict.fromkeys("ABCDEFGHIJKL", (..., ..., ..., ...))).status == NOT_ATTEMPTED


def test_the_project_pools_the_places_that_any_row_uses_or_half_of_them():
    model, places = Classifier(Config()), Config().places
    x, padding = torch.randn(2, places, 5), torch.ones(2, places, dtype=torch.bool)
    assert torch.equal(model.pooled(x, padding), x[:, : places // 2].mean(1))
    padding[0, :2], padding[1, :3] = False, False
    assert torch.equal(model.pooled(x, padding), x[:, :3].mean(1))


def test_the_project_refines_once_for_every_unit_and_thrice_at_most():
    assert [rounds(amount) for amount in (0.0, 0.9, 1.0, 2.5, 7.0)] == [1, 1, 2, 3, 3]
