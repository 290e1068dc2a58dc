"""The run of lesson 01: it dies with 162 and 161, stays intact, and can be taken back."""

import re

import course
import pytest
import torch

from recompute_lab.instruments.checkpointing import NON_REENTRANT, Mismatch
from recompute_lab.instruments.nondeterminism import Atomics, Nudge
from recompute_lab.lessons.crash import repeat_step
from recompute_lab.specimens.norm_cap import CountingCap, GuardedNormCap, RepairedNormCap
from recompute_lab.specimens.training import DigitRun


def staged(cap=GuardedNormCap, **settings) -> DigitRun:
    nudge = Nudge({1: 4, 2: -4})

    def run_trunk(trunk, stream):
        nudge.rewind()
        return NON_REENTRANT(nudge.counted(trunk), stream)

    return DigitRun(cap, nudge, run_trunk, **settings)


@pytest.fixture(scope="module")
def dead() -> tuple[DigitRun, Mismatch]:
    run = staged()
    error = run.train(60)
    return run, Mismatch.of(error)


def test_the_run_dies_at_the_first_capped_vector_with_162_and_161(dead):
    run, mismatch = dead
    assert (mismatch.kind, mismatch.saved, mismatch.recomputed) == ("count", 162, 161)
    assert [step.capped > 0 for step in run.history] == [False] * (len(run.history) - 1) + [True]
    assert run.history[-1].near >= run.history[-1].capped
    assert len(run.history) > 5, "the run should live for a while"


def test_its_cap_is_the_one_that_the_lesson_names():
    (named,) = re.findall(r"`limit` is (\d+\.\d+)", course.whole(course.NOTEBOOKS / "source" / "01_the_crash.py"))
    assert [cap.limit for cap in DigitRun().trunk.blocks[0].caps] == [float(named)] * 2


def test_a_crash_leaves_weights_and_optimizer_as_they_were(dead):
    run, _ = dead
    before, now = run.states[-1], run.state()
    assert all(torch.equal(now["model"][name], before["model"][name]) for name in before["model"])
    for index, moments in before["optimizer"]["state"].items():
        assert all(torch.equal(value, now["optimizer"]["state"][index][name]) for name, value in moments.items())


def test_going_back_repeats_the_crash_and_a_plain_step_does_not(dead):
    run, _ = dead
    fatal, run_trunk = run.states[-1], run.run_trunk
    assert repeat_step(run, fatal, 3) == {"count": 3}
    run.run_trunk = None
    assert repeat_step(run, fatal, 3) == {"fine": 3}
    run.run_trunk = run_trunk


def test_the_repair_survives_the_same_noise():
    assert staged(RepairedNormCap).train(25) is None


def test_without_noise_or_without_the_caps_nothing_dies():
    assert DigitRun(run_trunk=NON_REENTRANT).train(25) is None
    assert staged(limit=1e9).train(25) is None


def test_the_same_seed_gives_the_same_run_and_leaves_the_callers_random_stream():
    stream = torch.get_rng_state()
    losses = [[run.step() for _ in range(3)] for run in (DigitRun(), DigitRun())]
    assert losses[0] == losses[1]
    assert torch.equal(torch.get_rng_state(), stream)


def test_the_thread_count_is_what_it_was(two_threads):
    staged().train(2)
    assert torch.get_num_threads() == 2


def test_with_one_thread_atomics_kill_nothing():
    assert DigitRun(noise=Atomics(), run_trunk=NON_REENTRANT).train(25) is None


def test_a_counter_inside_the_segment_counts_twice():
    run = staged(CountingCap)
    run.step()
    assert run.trunk.blocks[0].caps[0].calls == 2
