"""Lesson 05's repairs of BatchNorm on the trained network, and what is tried in their place."""

from itertools import product

import pytest
import torch

from recompute_lab.instruments.checkpointing import NON_REENTRANT, PLAIN
from recompute_lab.instruments.state import same_bits
from recompute_lab.lessons import batchnorm_repairs as lesson
from recompute_lab.lessons.batchnorm import TORCHS, Deviation
from recompute_lab.specimens.batchnorm_training import BatchNormRun, Settings

SHORT = Settings(6, drift=1.0)
WAYS = tuple(product(TORCHS, (1, 3)))


@pytest.fixture(scope="module")
def table() -> dict:
    return lesson.repairs(WAYS, SHORT)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: f"{way[0]}, {way[1]} deep")
def test_every_repair_is_the_plain_run_in_every_bit_and_none_is_not(table, way):
    assert set(table) == set(lesson.REPAIRS)
    for repair, row in table.items():
        if repair == "none":
            assert row[way].worst > 0.01 and row[way].tracked > row[way].expected == 6
        else:
            assert row[way] == Deviation(0.0, 0.0, 6, 6), repair


def test_three_deep_reentrant_writes_four_times_where_nothing_is_repaired(table):
    assert table["none"]["reentrant", 3].tracked == 4 * 6


@pytest.mark.parametrize("repair", lesson.REPAIRS)
def test_losses_and_gradients_are_the_plain_runs(repair):
    plain = BatchNormRun(SHORT).train()
    for way in TORCHS:
        run = lesson.repaired(repair, way, settings=SHORT)
        assert [(s.loss, s.gradients) for s in run.history] == [(s.loss, s.gradients) for s in plain.history]


def test_a_run_that_cannot_be_is_refused():
    for given in (("prayer", "reentrant", 1), ("none", "eager", 1), ("none", "reentrant", 0)):
        with pytest.raises(ValueError, match="Repairs are: none, made idempotent, .*; ways: plain, reentrant"):
            lesson.run_segment(*given)


def test_what_is_tried_in_place_of_a_repair():
    found = lesson.attempts()
    off, mode, grad = found.values()
    assert off["non-reentrant"].outcome == "count" and off["reentrant"].equal
    assert mode["non-reentrant"].outcome == "metadata"
    assert mode["reentrant"].outcome == "silent" and mode["reentrant"].worst > 0.5
    assert grad["reentrant"].equal and grad["non-reentrant"].outcome == "fine"
    assert set(grad["non-reentrant"].changed) == {"1.num_batches_tracked", "1.running_mean", "1.running_var"}


def test_a_batchnorm_that_asks_grad_mode_is_torchs_but_for_its_writes():
    ours, torchs = lesson.layers(lesson.AsksGradMode), lesson.layers()
    x = torch.randn(8, 16)
    assert same_bits(PLAIN(ours, x), PLAIN(torchs, x)) and same_bits(ours[1].running_var, torchs[1].running_var)
    with torch.no_grad():
        assert same_bits(ours(x), torchs(x))
    assert (ours[1].num_batches_tracked, torchs[1].num_batches_tracked) == (1, 2)  # it misses a forward without grad


def test_the_switch_is_put_back_also_where_the_recomputation_raises():
    module = lesson.layers()
    context = lesson.switched_off(module)
    loss = lesson.with_context(NON_REENTRANT, context)(module, lesson.rows()).sum()
    with pytest.raises(torch.utils.checkpoint.CheckpointError):
        loss.backward()
    assert module[1].track_running_stats
