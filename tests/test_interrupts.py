"""Ctrl-C, and what else ends a call before its time: torch, the process and the caller's module are as before."""

import contextlib
import gc
import signal
import warnings
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from interrupting import changed, fingerprint, interrupted, of_module, own_temporary_folder, places, sample
from sample_cards import sample_deck
from torch import nn
from torch.utils.checkpoint import CheckpointError, checkpoint

from recompute_lab import (
    NON_REENTRANT,
    REENTRANT,
    Witness,
    audit,
    divergence,
    examine,
    passes,
    record,
    run_twice,
    writes,
)
from recompute_lab.instruments.determinism import switched
from recompute_lab.instruments.interrupts import uninterrupted
from recompute_lab.instruments.memory import footprint
from recompute_lab.instruments.own_checkpoint import OWN
from recompute_lab.instruments.root_cause import root_cause
from recompute_lab.instruments.steps import outcomes
from recompute_lab.instruments.timing import seconds
from recompute_lab.lessons import (
    batchnorm_panel,
    batchnorm_repairs,
    early_warning,
    flip_panel,
    loud_or_silent,
    mask_panel,
    threshold,
)
from recompute_lab.lessons.advice import after_a_cell
from recompute_lab.lessons.card_panel import Practice
from recompute_lab.lessons.progress import Journal
from recompute_lab.specimens.trunk import Trunk
from recompute_lab.views import threshold as view
from recompute_lab.views.card_panel import ALL, GRADED, CardPanel
from recompute_lab.views.panel import Panel

PLACES = 5  # of each call; a sample of its own for each


class Restless(nn.Module):
    """[3, 4] -> [3, 4]; it counts, remembers, draws, takes running statistics, and its second pass is another."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.norm = nn.Linear(4, 4), nn.Linear(4, 4), nn.BatchNorm1d(4)
        self.calls, self.seen, self.raises = 0, [0.0], {}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        self.seen.append(float(x.detach().sum()))
        if self.calls in self.raises:
            raise self.raises[self.calls]
        y = torch.tanh(self.first(x))
        y = torch.sigmoid(y) if self.calls % 2 else y
        return self.second(self.norm(y * nn.functional.dropout(torch.ones_like(y), 0.5)))


@pytest.fixture
def segment(tmp_path):
    segment = Restless()
    for parameter in segment.parameters():
        parameter.grad = torch.ones_like(parameter)
    with own_temporary_folder(tmp_path), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield segment


def x() -> torch.Tensor:
    return torch.linspace(-1, 1, 12).view(3, 4).requires_grad_()


def evaluate(model, data):
    with torch.no_grad():
        return {"mean": model(data).mean(), "rows": model(data)[:, 0]}


class Step:
    def __init__(self):
        self.segment = Restless()

    def step(self, run):
        loss = run(self.segment, x()).sum()
        loss.backward()
        return loss


def deterministically(_):
    with switched(True):
        (x() @ x().T).sum()


CALLS: dict[str, Callable[[nn.Module], object]] = {
    "record": lambda segment: record(segment, x()),
    "passes": lambda segment: passes(segment, x()),
    "passes, reentrant": lambda segment: passes(segment, x(), strategy=REENTRANT),
    "divergence": lambda segment: divergence(segment, x()),
    "divergence, the own checkpoint": lambda segment: divergence(segment, x(), strategy=OWN),
    "writes": lambda segment: writes(segment, x()),
    "examine": lambda segment: examine(segment, x()),
    "run_twice": lambda segment: run_twice(evaluate, segment, x().detach()),
    "footprint": lambda segment: footprint(segment, x()),
    "seconds": lambda _: seconds(lambda: x() + 1, rounds=2),
    "the switch": deterministically,
    "root_cause": lambda _: root_cause(Step),
    "outcomes": lambda _: outcomes(Step),
    "audit": lambda _: audit(__file__),
    "lesson 02: measure": lambda _: threshold.measure(16, 10, "real"),
    "lesson 02: steps": lambda _: next(threshold.steps(16, 16, 10, "staged", False)),
    "lesson 02: warnings": lambda _: early_warning.told.__wrapped__(0, 1.0),
    "lesson 03: train": lambda _: loud_or_silent.train("scale per vector", "false, then true", steps=1),
    "lesson 05: layers": lambda _: batchnorm_repairs.attempts(),
}


@pytest.mark.parametrize("name", CALLS)
def test_an_interrupted_call_leaves_all_as_it_was(name, segment, monkeypatch):
    monkeypatch.setattr(early_warning, "STEPS", 1)

    def call():
        CALLS[name](segment)

    call()  # what is imported, or cached, at the first call is no change
    number, came = places(call), 0
    assert number > 5
    for place in sample(number, PLACES, seed=len(name)):
        before, own = fingerprint(), of_module(segment)
        ended, where = interrupted(call, place)
        came += ended == "interrupted"
        assert ended in ("interrupted", "returned"), (ended, where)
        left = changed(before, fingerprint()) + changed(own, of_module(segment))
        assert not left, f"interrupted at {where}, place {place} of {number}: {left}"
    assert came > PLACES / 2


def riding_along(segment: nn.Module) -> None:
    witness = Witness()
    output = checkpoint(segment, x(), use_reentrant=False, context_fn=witness.context_fn)
    with contextlib.suppress(CheckpointError):
        output.sum().backward()


def test_an_interrupted_step_that_a_witness_watches_leaves_torch_as_it_was(segment):
    def call():
        segment.calls = 0
        riding_along(segment)

    call()
    for place in sample(places(call), 2 * PLACES, seed=1):
        before = fingerprint()
        ended, where = interrupted(call, place)
        left = [name for name in changed(before, fingerprint()) if not name.startswith("stream: torch")]
        assert not left, (place, ended, where, left)  # a step draws, and nobody promised to take that back


class _StopRecomputationError(Exception):
    """torch's own name for the end of a recomputation that has all it needs."""


RAISED = [ValueError(), SystemExit(3), GeneratorExit(), RecursionError(), MemoryError(), _StopRecomputationError()]


@pytest.mark.parametrize("error", RAISED, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("name", [name for name in CALLS if CALLS[name].__code__.co_varnames == ("segment",)])
def test_whatever_a_segment_raises_leaves_all_as_it_was(name, error, segment):
    with contextlib.suppress(ValueError):
        CALLS[name](segment)
    for at in (1, 2):
        segment.raises = {segment.calls + at: error}
        before, own = fingerprint(), of_module(segment)
        with contextlib.suppress(BaseException):
            CALLS[name](segment)
        gc.collect()
        left = changed(before, fingerprint()) + changed(own, of_module(segment))
        assert not left, f"raised in pass {at}: {left}"


def test_an_error_that_a_notebook_keeps_holds_no_checkpoint_open():
    """It would, in torch 2.6: by the frame in its traceback."""

    def fails(_):
        raise ValueError

    with pytest.raises(ValueError) as kept:
        NON_REENTRANT(fails, x())
    assert not fingerprint()["hooks on saved tensors"]
    with pytest.raises(ValueError) as kept:
        checkpoint(fails, x(), use_reentrant=False)  # torch's own, in a cell
    after_a_cell(SimpleNamespace(error_in_exec=kept.value))
    assert not fingerprint()["hooks on saved tensors"]


def test_an_interrupt_waits_for_the_end_of_what_must_be_whole():
    before, done = signal.getsignal(signal.SIGINT), []
    with pytest.raises(KeyboardInterrupt):
        with uninterrupted():
            with uninterrupted():
                signal.raise_signal(signal.SIGINT)
                done.append("inner")
            done.append("outer")
    assert done == ["inner", "outer"] and signal.getsignal(signal.SIGINT) is before


def test_what_is_put_back_is_put_back_whole(segment):
    """Every place in the second half of a short call, where the putting back is."""

    def call():
        record(segment, x())

    call()
    number = places(call)
    for place in sample(number, 12, seed=7):
        own = of_module(segment)
        interrupted(call, number - place // 4)
        assert not changed(own, of_module(segment))


# --- The panels


@pytest.fixture(scope="module")
def made() -> dict[str, Panel]:
    return {
        "lesson 02": threshold.panel(),
        "lesson 03": flip_panel.panel(),
        "lesson 04": mask_panel.panel(),
        "lesson 05": batchnorm_panel.panel(),
    }


MOVES = {
    "lesson 02": [("cap", 3), ("noise", 64), ("cap", 20), ("noise", 4), ("positions", 100), ("cap", -5)],
    "lesson 03": [("branch", "scale per vector"), ("implementation", "reentrant"), ("implementation", "non-reentrant")],
    "lesson 04": [("p", 0.3), ("stream", "torch's default"), ("p", 0.7)],
    "lesson 05": [("steps", 20), ("implementation", "reentrant"), ("repair", "none")],
}


@pytest.mark.parametrize("name", MOVES)
def test_an_interrupted_panel_says_so_and_goes_on(name, made, tmp_path):
    """Picture and sentence are those of the controls, or it shows none and says that it was interrupted."""
    panel = made[name]
    card = panel._nothing()
    with own_temporary_folder(tmp_path):
        for number, (control, value) in enumerate(MOVES[name]):
            before = fingerprint()
            ended, where = interrupted(partial(setattr, getattr(panel, control), "value", value), 97 * (number + 1))
            told, shown = panel.sentence.text, bytes(panel.picture.value)
            assert not changed(before, fingerprint()), where
            again = panel.message
            panel.refresh()  # with the controls as they are
            right = panel.message, bytes(panel.picture.value)
            if ended == "interrupted":
                assert (told, shown) == ("Interrupted: move a control to go on.", card), where
            else:
                assert told == right[0]
            assert again == right[0] and "Interrupted" not in right[0] and right[1] != card


def test_an_interrupted_grade_is_written_down_and_shown_all_the_same(tmp_path):
    """A card's move is short: Ctrl-C comes when it is whole."""
    pressed = 0
    for place in (1, 20, 200):
        journal = Journal(tmp_path / f"{place}.jsonl")
        panel = CardPanel(Practice(sample_deck(tmp_path), journal, lambda: datetime(2026, 3, 1, 12, tzinfo=UTC)))
        while panel.shown != ALL:
            panel.main.click()
        before = fingerprint()
        ended, where = interrupted(panel.grades["Good"].click, place)
        pressed += ended == "interrupted"
        written = len(journal.events())
        assert (written, panel.shown) in ((1, GRADED), (0, ALL)), where
        assert written or place == 1, "only before the move has begun can there be none"
        assert not changed(before, fingerprint()), where
    assert pressed


def test_a_new_drawing_is_not_marked_on_an_old_canvas(monkeypatch):
    """Interrupted between the measurement and its drawing, the panel must not go on with half of each."""
    panel = threshold.panel()
    canvas = view.Canvas

    def broken(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(view, "Canvas", broken)
    with pytest.raises(KeyboardInterrupt):
        panel.noise.value = 64
    monkeypatch.setattr(view, "Canvas", canvas)
    panel.cap.value = 40
    assert panel._canvas._made is panel._drawing_of_now.made and panel.message.startswith("At cap 40,")


def test_nothing_of_a_large_model_is_left_hooked():
    trunk = Trunk(width=16, heads=2, blocks=1)
    stream = torch.linspace(-1, 1, 64).view(1, 4, 16).requires_grad_()
    own = of_module(trunk)
    for place in sample(places(lambda: footprint(trunk, stream)), PLACES, seed=3):
        interrupted(lambda: footprint(trunk, stream), place)
        gc.collect()
        assert not changed(own, of_module(trunk))
