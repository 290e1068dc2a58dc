"""The field guide: what each fault comes to, what the witness says of it, what mends it; the chart; the exercises."""

import os
import signal
from functools import partial

import pytest
import torch
from answers.lesson_08 import ANSWER
from matplotlib.figure import Figure
from torch import nn
from torch.utils.checkpoint import CheckpointError, checkpoint

from recompute_lab import Witness, assert_replayable, examine, same_bits
from recompute_lab.instruments import root_cause as causes
from recompute_lab.instruments.checkpointing import NO_EARLY_STOP
from recompute_lab.instruments.state import Snapshot
from recompute_lab.instruments.steps import IMPLEMENTATIONS, outcome, outcomes, plainly, stepped
from recompute_lab.lessons import field_guide as guide
from recompute_lab.lessons.exercise import NOT_ATTEMPTED, WRONG
from recompute_lab.lessons.field_guide import check
from recompute_lab.specimens import own_arguments, saved_protocol
from recompute_lab.specimens.counters import WarmedUp
from recompute_lab.specimens.field_guide import EARLIER, GUIDE, ROOT_CAUSES, fault
from recompute_lab.specimens.other_world import Sharpened, logged
from recompute_lab.specimens.steps import Block, Model, power
from recompute_lab.specimens.unknown_segments import UNKNOWN, Economical, Patient, Steered, source
from recompute_lab.views import field_guide as views

RIGHT_, TWICE, SILENT, LOUD = "replayable", "side effect", "silent", "loud"

# Verdicts: reentrant, non-reentrant; a word of the report's first cause; is it proven by the run it rides along in?
EXPECTED = {
    "frozen embedding": (SILENT, RIGHT_, "frozen input", False),
    "features in a list": (SILENT, RIGHT_, "container", False),
    "adapter switched": (SILENT, SILENT, "active", True),
    "closure in a loop": (SILENT, SILENT, "layer", True),
    "popped from a dict": (SILENT, LOUD, "args[1]", True),
    "argument in place": (LOUD, LOUD, None, None),
    "weight gathered": (LOUD, LOUD, "weight", True),
    "critic steps first": (SILENT, SILENT, "up.weight", True),
    "kernel chosen outside": (RIGHT_, LOUD, "attention kernels", True),
    "unpacked twice": (RIGHT_, LOUD, "unpacked twice", True),
    "early stop swallowed": (RIGHT_, LOUD, "broad except", True),
    "tensor on ctx": (TWICE, SILENT, "ctx.gate", False),
    "cache that grows": (SILENT, LOUD, "keys", True),
    "masks from NumPy": (SILENT, SILENT, "numpy", True),
}
NAMES = list(EXPECTED)


def told(exercise, answer, status=WRONG) -> str:
    verdict = exercise.judge(answer)
    assert verdict.status == status, verdict
    return verdict.message


# --- The dozen, and the two of earlier lessons


def test_there_are_a_dozen_and_two():
    assert len(GUIDE) == 12 and len(EARLIER) == 2
    assert [one.name for one in guide.EVERYTHING] == NAMES
    assert {one.cause for one in guide.EVERYTHING} == set(ROOT_CAUSES) == set(causes.CAUSES)
    with pytest.raises(ValueError, match="frozen embedding.*got 'none'"):
        fault("none")


@pytest.mark.parametrize("name", NAMES)
def test_what_it_comes_to(name):
    reentrant, non_reentrant, _, _ = EXPECTED[name]
    found = guide.found(name)
    assert (found["reentrant"].verdict, found["non-reentrant"].verdict) == (reentrant, non_reentrant)
    for result in found.values():
        if result.verdict == SILENT:
            assert 0.2 < result.divergence.damage < 20


@pytest.mark.parametrize("name", NAMES)
def test_repaired_it_is_the_plain_run_bit_for_bit(name):
    assert guide.mended(name)


@pytest.mark.parametrize("name", NAMES)
def test_repaired_it_computes_what_it_did(name):
    """But for the noise, whose repair is other noise, and for the one whose plain run refuses."""
    one = fault(name)
    result = outcome(one.faulty, plainly, stepped(one.repaired, plainly))
    if name == "critic steps first":
        assert "inplace operation" in result.error
    elif name != "masks from NumPy":
        gradients = result.divergence.rows
        assert gradients and all(row.equal for row in gradients) and not result.divergence.missing


@pytest.mark.parametrize("name", NAMES)
def test_the_witness_names_the_cause_and_proves_it_where_it_can_put_back(name):
    *_, word, proven = EXPECTED[name]
    report = guide.report(name)
    if word is None:  # the error comes before there is a recomputation
        assert report is None and "no report" in guide.sheet(name)
        return
    assert word in report.causes[0].name and report.causes[0].proven is proven
    assert len(str(report).splitlines()) <= 15
    # The implementation that ran, as measured; of the other one, whether it is right at all.
    assert report.non_reentrant == EXPECTED[name][1]
    assert (report.reentrant in (RIGHT_, TWICE)) == (EXPECTED[name][0] in (RIGHT_, TWICE))


@pytest.mark.parametrize("name", NAMES)
def test_the_repaired_one_is_not_accused(name):
    assert {report.verdict for report in guide.watched(fault(name).repaired)} == {RIGHT_}


@pytest.mark.parametrize("name", NAMES)
def test_the_chart_leads_to_its_root_cause(name):
    one = fault(name)
    found = guide.charted(one)
    assert found.number == one.cause
    who = {("reentrant",): "reentrant only", ("non-reentrant",): "non-reentrant only"}.get(tuple(found.wrong), "both")
    assert any(step.who == who and step.cause == one.cause for step in guide.STEPS)


@pytest.mark.parametrize("name", NAMES)
def test_its_symptoms_leave_its_root_cause(name):
    one = fault(name)
    seen = guide.symptoms_of(guide.found(name))
    assert seen and all(one.cause in left for _, left in seen)


def test_each_symptom_is_seen():
    seen = {entry[0] for name in NAMES for entry in guide.symptoms_of(guide.found(name))}
    seen |= {entry[0] for letter in UNKNOWN for entry in guide.symptoms_of(guide.unknown_finding(letter).outcomes)}
    assert seen == {text for _, text, _ in guide.SYMPTOMS}


@pytest.mark.parametrize("name", ["unpacked twice", "early stop swallowed", "tensor on ctx"])
def test_reentrant_is_the_right_one(name):
    assert all(row.equal for row in guide.found(name)["reentrant"].divergence.rows)
    assert guide.found(name)["non-reentrant"].verdict in (LOUD, SILENT)


def test_a_switched_kernel_saves_something_else_and_is_right_up_to_rounding():
    result = guide.found("kernel chosen outside")["reentrant"]
    assert result.divergence.worst < 1e-5 and result.loss_off < 1e-5
    assert "different metadata" in guide.found("kernel chosen outside")["non-reentrant"].error


def test_early_stop_off_mends_what_the_handler_has_caught():
    assert outcome(saved_protocol.Swallowed, NO_EARLY_STOP).divergence.equal


def test_the_sheets_fit_the_page():
    for name in NAMES:
        lines = guide.sheet(name).splitlines()
        assert len(lines) <= 18 and max(map(len, lines)) <= 100


# --- The report on a crash, and the proof


def test_the_report_is_attached_to_the_error_and_is_shorter_by_far():
    with pytest.raises(CheckpointError) as caught:
        own_arguments.Popped().step(partial(checkpoint, use_reentrant=False, context_fn=Witness().context_fn))
    (note,) = caught.value.__notes__
    assert "args[1] at own_arguments.py" in note and len(note.splitlines()) <= 15
    with pytest.raises(CheckpointError) as long:
        own_arguments.Popped().step(partial(checkpoint, use_reentrant=False, debug=True))
    assert len(str(long.value).splitlines()) > 1000


def test_put_everything_back_then_leave_one_thing_out():
    torch.manual_seed(0)
    layer, x = Sharpened(), torch.randn(32, 16, requires_grad=True)
    forward = Snapshot(layer, x)
    first = layer(x)
    logged(layer)
    recomputation = Snapshot(layer, x)
    suspects = forward.changes()
    assert len(suspects) == 6
    needed = []
    for left in ((), *[(suspect,) for suspect in suspects]):
        forward.restore(keep=left)
        if not same_bits(layer(x), first):
            needed += left
        recomputation.restore()
    assert needed == ["dropout.training", "temperature"]
    forward.restore()
    report = examine(layer, x, between=logged)
    assert (report.reentrant, report.non_reentrant) == (SILENT, LOUD)
    assert all(cause.proven for cause in report.causes) and len(report.causes) == 2
    assert "dropout.training" in report.causes[0].name and report.causes[1].name == "temperature"


class Both(nn.Module):
    """Doubles where two flags are set: it takes two changes together to do harm."""

    def __init__(self):
        super().__init__()
        self.layer, self.one, self.other = nn.Linear(16, 16), False, False

    def forward(self, x):
        return torch.tanh(self.layer(x) * (2.0 if self.one and self.other else 1.0))


def test_of_two_changes_that_do_harm_together_one_is_named():
    def between(segment):
        segment.one = segment.other = True

    report = examine(Both(), torch.randn(8, 16, requires_grad=True), between=between)
    assert [cause.name in ("one", "other") for cause in report.causes] == [True] and report.causes[0].proven


def test_riding_along_in_a_loop():
    torch.manual_seed(0)
    blocks, witness = nn.ModuleList([Block(), WarmedUp(), Block()]), Witness()
    optimizer, x = torch.optim.SGD(blocks.parameters(), lr=0.1), torch.randn(32, 16, requires_grad=True)
    for _ in range(4):
        h = x
        for block in blocks:
            h = checkpoint(block, h, use_reentrant=False, context_fn=witness.context_fn)
        optimizer.zero_grad()
        power(h).backward()
        optimizer.step()
    verdicts = [report.non_reentrant for report in witness.reports]
    assert verdicts.count(RIGHT_) == 8 and verdicts.count(SILENT) == 4
    assert witness.report().causes[0].name == "calls" and witness.report().causes[0].proven
    assert_replayable(blocks[0], x)
    with pytest.raises(AssertionError, match="calls at counters.py"):
        assert_replayable(blocks[1], x)


# --- Root causes by treatment


def test_a_right_step_has_none():
    found = causes.root_cause(fault("adapter switched").repaired)
    assert found.number is None and not found.wrong


def test_only_its_own_treatment_helps():
    for name in ("adapter switched", "closure in a loop", "weight gathered", "cache that grows", "masks from NumPy"):
        one = fault(name)
        wrong = causes.root_cause(one.faulty, guide.plain_run(name)).wrong
        healing = [n for n in range(2, 8) if causes.treat(one.faulty, n, wrong, guide.plain_run(name))[0]]
        assert healing == [one.cause]


def test_what_has_no_treatment():
    for number in (0, 8, 9):
        with pytest.raises(ValueError, match="1 to 7"):
            causes.treated(number, "reentrant", [])
    assert causes.treat(fault("masks from NumPy").faulty, 1, [])[0] is False


def test_a_step_leaves_nothing_behind():
    before = torch.get_rng_state()
    outcomes(fault("masks from NumPy").faulty)
    assert same_bits(torch.get_rng_state(), before)
    assert len(Steered().block.up._forward_hooks) == 0


class Broken(Model):
    def build(self):
        self.layer = nn.Linear(16, 16)

    def step(self, run=None):
        raise KeyError("no such thing")


def test_what_the_plain_run_raises_passes_through():
    with pytest.raises(KeyError, match="no such thing"):
        outcomes(Broken)


# --- Figures and words


def test_the_figures_are_drawn():
    rows = guide.rows()
    assert isinstance(views.outcomes(rows, ROOT_CAUSES, ("reentrant", "non-reentrant")), Figure)
    looks = [[look for look, _ in row.cells] for row in rows]
    assert [sum(row[i] == "silent" for row in looks) for i in (0, 1)] == [8, 5]
    assert isinstance(views.chart(guide.STEPS, ROOT_CAUSES, guide.SEEN), Figure)
    with pytest.raises(ValueError, match="2 cells"):
        views.outcomes([views.Row("x", 1, (("right", "right"),))], ROOT_CAUSES, ("a", "b"))
    with pytest.raises(ValueError, match="a row at least"):
        views.outcomes([], ROOT_CAUSES, ("a",))
    with pytest.raises(ValueError, match="has steps"):
        views.chart([], ROOT_CAUSES, {})


def test_the_chart_in_words_has_every_step():
    words = guide.chart_in_words()
    assert all(step.question in words and step.repair in words for step in guide.STEPS)
    assert {step.cause for step in guide.STEPS} == set(ROOT_CAUSES)
    assert {step.who for step in guide.STEPS} == set(guide.SEEN)
    assert max(map(len, words.splitlines())) <= 100


# --- The six unknown segments


@pytest.mark.parametrize("letter", UNKNOWN)
def test_each_is_right_without_checkpointing_and_can_be_read(letter):
    assert outcome(UNKNOWN[letter], plainly).divergence.equal
    assert UNKNOWN[letter].__name__ in source(letter)


def test_there_is_no_seventh():
    with pytest.raises(ValueError, match="A, B, C, D, E, F to read; got 'G'"):
        source("G")


@pytest.mark.parametrize("letter", UNKNOWN)
def test_each_wrong_verdict_is_held_against_a_run(letter):
    number, name, reentrant, non_reentrant = ANSWER[letter]
    for i, right in enumerate((reentrant, non_reentrant)):
        for wrong in {"right", "silent", "loud"} - {right}:
            verdicts = [reentrant, non_reentrant]
            verdicts[i] = wrong
            message = told(check.diagnose, {**ANSWER, letter: (number, name, *verdicts)})
            assert message.startswith(
                f"{letter}, {('reentrant', 'non-reentrant')[i]}: you said '{wrong}'; run, it is: "
            )


@pytest.mark.parametrize("letter", UNKNOWN)
@pytest.mark.parametrize("name", ["stem", "loss", "rows", "", 3, None])
def test_a_wrong_name(letter, name):
    if name is None:
        told(check.diagnose, {**ANSWER, letter: (ANSWER[letter][0], name, *ANSWER[letter][2:])}, NOT_ATTEMPTED)
        return
    message = told(check.diagnose, {**ANSWER, letter: (ANSWER[letter][0], name, *ANSWER[letter][2:])})
    assert f"{name!r} is not what differs" in message


def test_what_the_witness_sees_of_them():
    """Riding along, too, what reentrant's forward would do without recording; and it cannot name an iterator."""
    assert all(map(guide.seen_by_the_witness, UNKNOWN))
    cause = guide.told_of("C").causes[0]
    assert not cause.proven and "next(scales, 1.0)" in cause.name
    x = torch.randn(32, 16, requires_grad=True)
    for loss in ({}, {"loss": power}):
        report = examine(Economical().thrifty, x, **loss)
        assert report.reentrant == SILENT and "grad mode" in report.causes[0].name
    assert "broad except" in examine(Patient().careful, x).causes[0].name


# --- Two public models


def test_mixtral_s_routers_lose_the_balance_term_under_reentrant():
    pytest.importorskip("transformers")
    from recompute_lab.specimens.public_models import Mixtral

    for share, least in ((1.0, 0.9), (0.001, 0.05)):
        found = outcomes(partial(Mixtral, share))
        off = {n: max(r.error for r in o.divergence.rows if "mlp.gate" in r.name) for n, o in found.items()}
        assert off["reentrant"] > least and off["non-reentrant"] == 0
        assert all(result.loss_off == 0 and result.divergence.raised is None for result in found.values())
    for name, graph in (("reentrant", False), ("non-reentrant", True)):
        model = Mixtral()
        model.step(IMPLEMENTATIONS[name])
        assert model.output.aux_loss.requires_grad is graph
    told = guide.worst_of(guide.watched(Mixtral))
    assert (told.non_reentrant, told.reentrant) == ("replayable", "silent")
    assert "router_logits" in told.causes[0].name and told.causes[0].under == ("reentrant",)


def test_wav2vec2_draws_its_masks_with_numpy():
    pytest.importorskip("transformers")
    from recompute_lab.specimens.public_models import Wav2Vec2, Wav2Vec2Told

    result = outcomes(Wav2Vec2)["non-reentrant"]
    assert result.verdict == SILENT
    assert {r.name: r.error for r in result.divergence.rows}["model.masked_spec_embed"] > 0.1
    report = guide.worst_of(guide.watched(Wav2Vec2))
    assert "numpy random stream" in report.causes[0].name and report.causes[0].proven
    assert outcomes(Wav2Vec2Told)["non-reentrant"].divergence.equal


def test_an_interrupt_waits_until_debug_mode_has_ended():
    before, error = dict(os.environ), None
    with pytest.raises(KeyboardInterrupt):
        with guide.debugging():
            signal.raise_signal(signal.SIGINT)
            try:
                own_arguments.Popped().step(partial(checkpoint, use_reentrant=False, debug=True))
            except CheckpointError as raised:
                error = raised
    assert len(str(error).splitlines()) > 1_000
    assert dict(os.environ) == before and signal.getsignal(signal.SIGINT) is signal.default_int_handler
