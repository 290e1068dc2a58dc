"""The exercises on side effects: what they are asked about is what the instruments find, and stubs are told apart."""

from contextlib import contextmanager, nullcontext

import numpy as np
import pytest
from answers.lesson_05 import FOUND, GOOD, once

from recompute_lab.instruments.writes import writes
from recompute_lab.lessons.exercise import NOT_ATTEMPTED, WRONG
from recompute_lab.lessons.side_effects import rows
from recompute_lab.lessons.writes_exercises import REASONS, REPAIRS, ROLES, check
from recompute_lab.specimens import unknown_writes as unknown
from recompute_lab.specimens.unknown_writes import Smoothed, sharpened


def told(exercise, *answer, status=WRONG) -> str:
    verdict = exercise.judge(*answer)
    assert verdict.status == status, verdict
    return verdict.message


def test_the_truth_is_the_instrument_s():
    for name, make in unknown.UNKNOWN.items():
        found = {write.name.rpartition(".")[2] for write in writes(make(), rows())}
        assert found == FOUND[name]
        assert unknown.source(name)
    with pytest.raises(ValueError, match="Smoothed, Gated, sharpened to review"):
        unknown.source("smoothed")


@pytest.mark.parametrize(("segment", "name"), [(segment, name) for segment in FOUND for name in sorted(FOUND[segment])])
def test_what_is_missed_is_described_and_not_named(segment, name):
    message = told(check.find_all, {**FOUND, segment: FOUND[segment] - {name}})
    assert message.startswith(f"{segment}: you missed a") and name not in message


def test_all_that_is_missed_is_told():
    message = told(check.find_all, {**FOUND, "Gated": FOUND["Gated"] | {"position"}, "Smoothed": set()})
    assert "Gated: 'position' is not written." in message and message.count("Smoothed: you missed") == 3


def test_a_stub_is_not_attempted():
    class Stub(Smoothed):
        def forward(self, x, history=[]): ...  # noqa: B006

    def context_with_a_stub(module):
        @contextmanager
        def recomputation(): ...

        return lambda: (nullcontext(), nullcontext())

    for exercise, answer in (
        (check.find_all, {**FOUND, "Gated": ...}),
        (check.guarded, Stub),
        (check.from_outside, context_with_a_stub),
        (check.moved_out, (once, ...)),
    ):
        assert exercise.judge(answer).status == NOT_ATTEMPTED


def test_what_sharpened_writes_can_be_read_and_put_back():
    before = unknown.read()
    sharpened(rows())
    assert unknown.TEMPERATURE != before[0] and sharpened.calls == before[1] + 1
    assert np.random.get_state()[2] != before[2][2]
    unknown.write(before)
    assert (unknown.TEMPERATURE, sharpened.calls) == before[:2] and np.random.get_state()[2] == before[2][2]


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("repair", ["eval", "grad mode"])
def test_what_cannot_be_defended_has_no_reason(role, repair):
    for reason in REASONS:
        assert told(check.who_chooses, {**GOOD, role: (repair, reason)}).startswith(f"{role}: ")


def test_a_right_repair_needs_a_right_reason():
    for role, (repair, right) in GOOD.items():
        for reason in REASONS.keys() - {right} - ({"no edit", "same run"} if role != "author" else set()):
            assert "can be defended, but not with" in told(check.who_chooses, {**GOOD, role: (repair, reason)})
    assert set(REPAIRS) >= {"guard", "replay", "return", "idempotent", "outside", "leave"}
