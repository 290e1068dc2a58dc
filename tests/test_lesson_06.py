"""Lesson 06: the project's sites are what the lesson says, its repairs keep every bit, wrong answers are told why."""

import math
import re

import pytest
import torch

from recompute_lab.instruments.audit import audit
from recompute_lab.lessons import audit_exercises as exercises
from recompute_lab.lessons import audit_source as lesson
from recompute_lab.lessons.audit_exercises import check, hint
from recompute_lab.lessons.exercise import NOT_ATTEMPTED, RIGHT, WRONG
from recompute_lab.specimens import mended_project as mended
from recompute_lab.specimens.small_project import Config, Trainer, batch, blocks, caps, mixing
from recompute_lab.specimens.small_project.config import Switches
from recompute_lab.specimens.small_project.experts import Experts
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

TRIAGE = {
    "A": ("inside", "armed", "graph", "repair"),
    "B": ("not seen", "armed", "nothing", "keep"),
    "C": ("inside", "armed", "raise", "move"),
    "D": ("inside", "armed", "graph", "repair"),
    "E": ("inside", "armed", "state", "move"),
    "F": ("inside", "armed", "telemetry", "keep"),
    "G": ("inside", "dormant", "graph", "repair"),
    "H": ("not seen", "armed", "nothing", "keep"),
    "I": ("inside", "armed", "graph", "repair"),
    "J": ("inside", "armed", "graph", "repair"),
    "K": ("not seen", "armed", "raise", "keep"),
    "L": ("not seen", "armed", "graph", "keep"),
}


def judged(exercise, *answer):
    verdict = exercise.judge(*answer)
    return verdict.status, " ".join(verdict.message.split())


def test_triage():
    assert exercises.answers() == TRIAGE
    status, told = judged(check.triage, TRIAGE | {"B": ("inside", "dormant", "nothing", "keep")})
    assert status == RIGHT and "5 of twelve" in told


@pytest.mark.parametrize(
    ("letter", "said", "message"),
    [
        ("A", ("not seen", "armed", "graph", "keep"), "a run finds it in a recomputation"),
        ("B", ("not seen", "armed", "graph", "keep"), "it is text, or NumPy"),
        ("H", ("inside", "armed", "nothing", "repair"), "There is nothing to repair"),
        ("G", ("inside", "armed", "graph", "repair"), "float32 never gets past the dtype"),
        ("G", ("inside", "dormant", "graph", "keep"), "Dormant is not fixed"),
        ("C", ("inside", "dormant", "raise", "move"), "nothing is off before it"),
        ("E", ("inside", "armed", "telemetry", "keep"), "an attribute that is read again"),
        ("F", ("inside", "armed", "graph", "repair"), "whether a line is logged"),
        ("K", ("inside", "armed", "raise", "move"), "after both checkpoints"),
        ("L", ("not seen", "armed", "graph", "repair"), "no recomputation can go wrong"),
        ("J", ("inside", "armed", "loop", "repair"), "'loop' is none of"),
        ("J", ("inside", "armed"), "give four words"),
    ],
)
def test_triage_wrong(letter, said, message):
    status, told = judged(check.triage, TRIAGE | {letter: said})
    assert status == WRONG and message in told, told


def test_triage_without_a_letter_and_unfilled():
    assert "keep the twelve letters" in judged(check.triage, {"A": TRIAGE["A"]})[1]
    assert judged(check.triage, dict.fromkeys("ABCDEFGHIJKL", (..., ..., ..., ...)))[0] == NOT_ATTEMPTED


COMPARED = """
def segment(x):
    if x.abs().max() > 1.0:
        x = x.tanh()
    return x.sin()
"""
LATER = """
def segment(x):
    largest = x.amax().item()
    return x.tanh() if largest > 1 else x.sin()
"""
TABLE = """
ARMS = {"True": torch.tanh, "False": torch.sin}

def segment(x):
    return ARMS[str((x.max() > 1.0).item())](x)
"""
EXCEPT = """
def segment(x):
    try:
        return x.narrow(0, 0, int(x.amax().clamp(0, 20)) + 1).tanh()
    except RuntimeError:
        return x.sin()
"""
CALLED = """
def segment(x):
    if x.max():
        x = x.tanh()
    return x.sin()
"""


@pytest.mark.parametrize("text", [COMPARED, LATER])
def test_walked_past(text):
    status, told = judged(check.walked_past, text)
    assert status == RIGHT and "Other operations run for" in told


@pytest.mark.parametrize("text", [TABLE, EXCEPT])
def test_missed_by_both(text):
    status, told = judged(check.missed_by_both, text)
    assert status == RIGHT and "neither search of the text finds it" in told and "Python read" in told, told


@pytest.mark.parametrize(
    ("exercise", "text", "message"),
    [
        ("walked_past", CALLED, "the grep finds it: if x.max():"),
        ("walked_past", "def segment(x):\n    return x.tanh()", "no value decides what runs"),
        (
            "walked_past",
            "def segment(x):\n    if x.shape[0] > 4:\n        x = x.tanh()\n    return x",
            "no value decides",
        ),
        ("walked_past", TABLE, "the audit misses it too"),
        ("walked_past", "def block(x):\n    return x", "a function of the name segment"),
        ("walked_past", "def segment(x):\n    assert x.max() < 1\n    return x", "no operation hangs on it"),
        ("walked_past", "def segment(x)\n    return x", "Python cannot parse it, in line 1 of your text"),
        ("walked_past", len, "give the source as a text"),
        ("walked_past", COMPARED.replace("return x.sin()", "print(x.sum().item() > 9)"), "has to return a tensor"),
        (
            "walked_past",
            "def segment(x):\n    return x.tanh() if torch.rand(()) < 0.5 else x",
            "two runs with the same input",
        ),
        ("missed_by_both", COMPARED, "the audit finds it, in line 2 of your text: if x.abs().max() > 1.0:"),
        ("missed_by_both", "def segment(x):\n    return x[x > 0].sum()", "no value decides what runs"),
        ("missed_by_both", CALLED, "the grep finds it"),
        (
            "missed_by_both",
            COMPARED.replace("1.0:", "1.0:  # recompute-lab: ignore[tensor-branch] not here"),
            "suppresses the finding is no form",
        ),
    ],
)
def test_walked_past_wrong(exercise, text, message):
    status, told = judged(getattr(check, exercise), text)
    assert status == WRONG and message in told, told


def bent(x, hot):
    large = x.abs().amax() > hot
    safe = torch.where(large, x, 0.0)
    return torch.where(large, hot * torch.tanh(safe / hot), x)


def bent_poisoned(x, hot):
    return torch.where(x.abs().amax() > hot, hot * torch.tanh(x / hot), x)


def bent_each(x, hot):
    return torch.where(x.abs() > hot, hot * torch.tanh(x / hot), x)


def bent_always(x, hot):
    return hot * torch.tanh(x / hot)


def bent_still(x, hot):
    large = x.abs().amax() > hot
    if large:
        x = hot * torch.tanh(x / hot)
    return x * 1


def bent_by_number(x, hot):
    share = float(x.abs().amax() > hot)
    return x + share * (hot * torch.tanh(x / hot) - x)


def in_bounds(x):
    if x.dtype != torch.float16:
        return x * 1
    largest = torch.finfo(x.dtype).max - 1000
    return torch.where(torch.isinf(x).any(), x.clamp(-largest, largest), x)


def in_chosen_bounds(x):
    if x.dtype != torch.float16:
        return x * 1
    largest = torch.finfo(x.dtype).max
    bound = torch.where(torch.isinf(x).any(), largest - 1000, largest).to(x.dtype)
    return torch.clamp(x, min=-bound, max=bound)


def in_bounds_always(x):
    if x.dtype != torch.float16:
        return x * 1
    largest = torch.finfo(x.dtype).max - 1000
    return x.clamp(-largest, largest)


def in_bounds_of_any_dtype(x):
    largest = torch.finfo(torch.float16).max - 1000
    return torch.where(torch.isinf(x).any(), x.clamp(-largest, largest), x)


def in_bounds_still(x):
    largest = torch.finfo(x.dtype).max - 1000
    return x.clamp(-largest, largest) if x.dtype == torch.float16 and x.isinf().any() else x * 1


def summed(x, parts):
    if x.shape[1] < parts:
        return x.mean(1)
    means = [part.mean(1) for part in x.chunk(parts, dim=1)]
    return sum(torch.where(mean.abs().mean() > 0.25, mean, 0.0) for mean in means) / len(means)


def summed_by_factor(x, parts):
    if x.shape[1] < parts:
        return x.mean(1)
    means = [part.mean(1) for part in x.chunk(parts, dim=1)]
    return sum(mean * (mean.abs().mean() > 0.25) for mean in means) / len(means)


def summed_all(x, parts):
    if x.shape[1] < parts:
        return x.mean(1)
    means = [part.mean(1) for part in x.chunk(parts, dim=1)]
    return sum(means) / len(means)


@pytest.mark.parametrize(
    ("exercise", "answer"),
    [("bent_back", bent), ("clamped", in_bounds), ("clamped", in_chosen_bounds), ("summary", summed)],
)
def test_three_repairs(exercise, answer):
    status, told = judged(getattr(check, exercise), answer)
    assert status == RIGHT and "the audit has nothing to report" in told, told


def bent_where(large, x, hot):
    return torch.where(large, hot * torch.tanh(torch.where(large, x, 0.0) / hot), x)


def bent_above_alone(x, hot):
    return bent_where(x.amax() > hot, x, hot)


def bent_where_any(x, hot):
    return bent_where((x.abs() > hot).any(), x, hot)


def in_bounds_each(x):
    largest = torch.finfo(torch.float16).max - 1000
    return x if x.dtype != torch.float16 else torch.where(torch.isinf(x), x.sign() * largest, x)


def summed_without_shape(x, parts):
    means = [part.mean(1) for part in x.chunk(parts, dim=1)]
    return sum(torch.where(m.abs().mean() > 0.25, m, 0.0) for m in means) / len(means)


@pytest.mark.parametrize(
    ("exercise", "answer", "message"),
    [
        ("bent_back", bent_each, "for one above, the output should be the guarded form's"),
        ("bent_back", bent_poisoned, "for one NaN, the gradient should be the guarded form's"),
        ("bent_back", bent_always, "for small activations, the output should be"),
        ("bent_back", bent_still, "still depends on them"),
        ("bent_back", bent_by_number, "should be the guarded form's bit for bit"),
        ("bent_back", bent_above_alone, "for one far below zero"),
        ("bent_back", bent_where_any, "for one NaN, one above"),
        ("bent_back", lambda x, hot: x.detach(), "missing"),
        ("clamped", in_bounds_always, "for float16, 65000 and no infinity"),
        ("clamped", in_bounds_of_any_dtype, "for float32, one infinity"),
        ("clamped", in_bounds_still, "still depends on them"),
        ("clamped", in_bounds_each, "for float16, 65000 and an infinity"),
        ("clamped", 3, "expected a function"),
        ("summary", summed_by_factor, "for one part of NaN"),
        ("summary", summed_all, "for one part of zeros|for one part of NaN"),
        ("summary", summed_without_shape, "for fewer places than parts, one with small numbers"),
        ("summary", mixing.summary, "still depends on them"),
    ],
)
def test_three_repairs_wrong(exercise, answer, message):
    status, told = judged(getattr(check, exercise), answer)
    assert status == WRONG and re.search(message, told), told


@pytest.mark.parametrize("name", ["triage", "walked_past", "missed_by_both", "bent_back", "clamped", "summary"])
def test_hints_come_one_at_a_time(name, capsys):
    getattr(hint, name)()
    assert capsys.readouterr().out.startswith("hint 1 of ")
