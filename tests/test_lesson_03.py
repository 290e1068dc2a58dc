"""Lesson 03: every cell of the matrix, and the hole that looks one way."""

import math
from itertools import product

import pytest
import torch

from recompute_lab import NO_EARLY_STOP, NON_REENTRANT, PLAIN, REENTRANT, Mismatch, divergence, passes, same_bits
from recompute_lab.instruments.nondeterminism import Nudge
from recompute_lab.lessons import loud_or_silent as lesson
from recompute_lab.lessons.loud_or_silent import DIRECTIONS, FLAGS, flip
from recompute_lab.specimens.branches import BRANCHES, RepairedScale
from recompute_lab.specimens.guards import clip_when_needed

FIRST, SECOND = DIRECTIONS  # "true, then false" and "false, then true"

# Under the non-reentrant implementation, by (early stop, determinism check). Where nothing raises: fine or silent.
DEFAULT, NO_CHECK, NO_STOP, NEITHER = (True, "default"), (True, "none"), (False, "default"), (False, "none")
EXPECTED = {
    ("scale per vector", FIRST): {DEFAULT: "count", NO_CHECK: "count", NO_STOP: "count", NEITHER: "count"},
    ("scale per vector", SECOND): {DEFAULT: "metadata", NO_CHECK: "silent", NO_STOP: "more", NEITHER: "more"},
    ("scale of full shape", FIRST): {DEFAULT: "count", NO_CHECK: "count", NO_STOP: "count", NEITHER: "count"},
    ("scale of full shape", SECOND): {DEFAULT: "silent", NO_CHECK: "silent", NO_STOP: "more", NEITHER: "more"},
    ("gate", FIRST): {DEFAULT: "count", NO_CHECK: "count", NO_STOP: "count", NEITHER: "count"},
    ("gate", SECOND): {DEFAULT: "silent", NO_CHECK: "silent", NO_STOP: "more", NEITHER: "more"},
    ("route", FIRST): {DEFAULT: "silent", NO_CHECK: "silent", NO_STOP: "silent", NEITHER: "silent"},
    ("route", SECOND): {DEFAULT: "silent", NO_CHECK: "silent", NO_STOP: "silent", NEITHER: "silent"},
    ("early exit", FIRST): {DEFAULT: "fine", NO_CHECK: "fine", NO_STOP: "more", NEITHER: "more"},
    ("early exit", SECOND): {DEFAULT: "count", NO_CHECK: "count", NO_STOP: "count", NEITHER: "count"},
}


@pytest.fixture(scope="module", params=range(3))
def cells(request):
    """The matrix for one seed; the lesson shows that of seed 0."""
    torch.set_num_threads(1)
    return {(c.branch, c.direction, s.use_reentrant, s.early_stop, s.determinism_check): d
            for c, s, d in lesson.matrix(request.param)}  # fmt: skip


def test_every_cell_of_the_matrix(cells):
    assert len(cells) == len(BRANCHES) * len(DIRECTIONS) * len(FLAGS) == 80
    for (branch, direction, reentrant, stop, compared), result in cells.items():
        scale = branch.startswith("scale")
        expected = ("fine" if scale else "silent") if reentrant else EXPECTED[branch, direction][stop, compared]
        assert result.outcome == expected, (branch, direction, reentrant, stop, compared)
        if expected == "silent":
            assert 0.3 < result.worst < 30 or result.missing
        if expected == "fine":
            assert result.worst < 1e-5 and not result.missing and not result.unexpected


def test_flags_mean_nothing_to_the_reentrant_implementation(cells):
    for branch, direction in product(BRANCHES, DIRECTIONS):
        rows = [
            cells[branch, direction, True, stop, compared].rows
            for stop in (True, False)
            for compared in ("default", "none")
        ]
        assert all(row == rows[0] for row in rows)


def test_the_norm_cap_is_silent_and_ruinous_by_the_size_of_its_gradients(cells):
    assert cells["scale of full shape", SECOND, False, True, "default"].worst == pytest.approx(1.0, abs=0.01)


@pytest.mark.parametrize("seed", range(5))
def test_the_hole_with_a_generic_guard(seed):
    nudge, x = (
        Nudge({1: -8, 2: +8}),
        torch.randn(32, 16, generator=torch.Generator().manual_seed(seed)).requires_grad_(),
    )
    bound = x.abs().max().item()
    segment = nudge.counted(lambda x: torch.tanh(clip_when_needed(nudge(x), bound)))
    open_, closed = (divergence(segment, x, strategy=s) for s in (NON_REENTRANT, NO_EARLY_STOP))
    assert open_.raised is None and 1 < open_.worst < 1000
    assert Mismatch.of(closed.raised).kind == "more"
    both = passes(segment, x)
    asked = ["abs", "max", "max"]  # the question saves, too
    assert [row.operator for row in both.forward] == [*asked, "tanh"]
    assert [row.operator for row in both.recomputation] == [*asked, "clamp"]
    assert both.recomputation.ended == "stopped early"


@pytest.mark.parametrize("branch", BRANCHES)
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_reentrant_gives_the_gradients_of_the_network_that_was_recomputed(branch, direction):
    case, other = flip(branch, direction), flip(branch, FIRST if direction == SECOND else SECOND)
    assert all(map(same_bits, case.gradients(REENTRANT), other.gradients(PLAIN)))
    if EXPECTED[branch, direction][DEFAULT] == "silent":
        assert not all(map(same_bits, case.gradients(NON_REENTRANT), other.gradients(PLAIN)))


@pytest.mark.parametrize("strategy", [REENTRANT, NON_REENTRANT, NO_EARLY_STOP])
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_a_flag_harms_nobody(strategy, direction):
    case = flip(RepairedScale, direction)
    assert divergence(case.segment, case.x, strategy=strategy).outcome == "fine"


@pytest.mark.parametrize(("branch", "direction"), [("scale", FIRST), ("gate", "true")])
def test_an_unknown_flip_is_refused_by_name(branch, direction):
    with pytest.raises(ValueError, match="is none of: "):
        flip(branch, direction)


def test_training_starts_from_one_state_and_stays_at_rounding_where_nothing_is_wrong():
    plain, again = (lesson.train("early exit", FIRST, steps=6) for _ in range(2))
    assert again.distances(plain) == [0.0] * 6 and again.losses == plain.losses
    assert max(lesson.train("early exit", FIRST, NON_REENTRANT, steps=6).distances(plain)) < 1e-4
    wrong = lesson.train("early exit", FIRST, REENTRANT, steps=6)
    assert min(wrong.distances(plain)) > 0.3 and wrong.losses[0] == plain.losses[0]
    assert all(map(math.isfinite, wrong.losses))
