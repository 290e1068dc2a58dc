"""The witness names the cause of each fault in `faults`, and says nothing of what is harmless."""

import contextvars
import re

import pytest
import torch
from faults import KINDS, REPLAYABLE, Fault, all_faults
from faults.runs import seeded, verdicts, watched

from recompute_lab.instruments.witness import Report, examine
from recompute_lab.instruments.witness.report import severity

EVERY = all_faults()
FAULTY = [f for f in EVERY if f.kind != "none"]
HARMLESS = [f for f in EVERY if f.kind == "none"]
LINES, COLUMNS = 15, 100


def cases(faults: list[Fault], question: str = "") -> list:
    """As parameters; what is known to be missed has to go on being missed, or it is time to say so no more."""
    return [
        pytest.param(f, id=f"{f.kind}-{f.name}", marks=_missed(f.missed.get(question))) for f in faults
    ]  # fmt: skip


def _missed(reason: str | None) -> list:
    return [pytest.mark.xfail(reason=reason, strict=True)] if reason else []


_WATCHED: dict[str, list[Report]] = {}
_EXAMINED: dict[str, Report] = {}


def seen(fault: Fault) -> list[Report]:
    """The reports of a watched step; it is run once."""
    if str(fault) not in _WATCHED:
        _WATCHED[str(fault)] = watched(fault)
    return _WATCHED[str(fault)]


def examined(fault: Fault) -> Report:
    if str(fault) not in _EXAMINED:
        dtype = torch.get_default_dtype()
        try:
            _EXAMINED[str(fault)] = contextvars.copy_context().run(_examine, fault)
        finally:
            torch.set_default_dtype(dtype)
    return _EXAMINED[str(fault)]


def _examine(fault: Fault) -> Report:
    seeded()
    segment, args = fault.make()
    return examine(segment, *args, **({"between": fault.between} if fault.between else {}))


def worst(found: list[str]) -> str:
    return max(found, key=severity, default="not run")


def test_there_are_faults_of_every_kind():
    assert {f.kind for f in EVERY} == set(KINDS)
    assert len(FAULTY) >= 45 and len(HARMLESS) >= 15
    assert len({f.name for f in FAULTY}) == len(FAULTY)


@pytest.mark.parametrize("fault", cases(EVERY))
def test_what_is_known_of_a_fault_is_what_comes_of_it(fault):
    """Against the plain run, each made afresh: nothing of the witness takes part."""
    assert verdicts(fault) == (fault.non_reentrant, fault.reentrant)


@pytest.mark.parametrize("fault", cases(FAULTY, "watched"))
def test_a_watched_step_names_the_cause_first(fault):
    firsts = [report.causes[0] for report in seen(fault) if report.causes]
    named = [cause for cause in firsts if re.search(fault.names, cause.name)]
    assert named, f"{[cause.name for cause in firsts]} instead of {fault.names}"
    assert not fault.proven or any(cause.proven for cause in named)


@pytest.mark.parametrize("fault", cases(FAULTY, "watched verdict"))
def test_a_watched_step_says_what_came_of_it(fault):
    assert worst([report.non_reentrant for report in seen(fault)]) == fault.non_reentrant


@pytest.mark.parametrize("fault", cases(FAULTY, "watched reentrant"))
def test_a_watched_step_predicts_whether_reentrant_is_at_fault(fault):
    predicted = worst([report.reentrant for report in seen(fault)])
    assert (predicted == REPLAYABLE) == (fault.reentrant == REPLAYABLE), predicted


@pytest.mark.parametrize("fault", cases([f for f in FAULTY if f.stands_alone], "examined"))
def test_an_examination_names_the_cause_first(fault):
    causes = examined(fault).causes
    assert causes and re.search(fault.names, causes[0].name), f"{[c.name for c in causes]} instead of {fault.names}"
    assert causes[0].proven or not fault.proven


@pytest.mark.parametrize("fault", cases([f for f in FAULTY if f.stands_alone], "examined verdict"))
def test_an_examination_says_what_comes_of_it(fault):
    report = examined(fault)
    assert (report.non_reentrant, report.reentrant) == (fault.non_reentrant, fault.reentrant)


@pytest.mark.parametrize("fault", cases(HARMLESS, "watched"))
def test_a_watched_step_is_silent_where_nothing_is_wrong(fault):
    for report in seen(fault):
        assert not report.causes, str(report)
        assert report.verdict == REPLAYABLE


@pytest.mark.parametrize("fault", cases([f for f in HARMLESS if f.stands_alone], "examined"))
def test_an_examination_is_silent_where_nothing_is_wrong(fault):
    report = examined(fault)
    assert not report.causes, str(report)
    assert report.verdict == REPLAYABLE


@pytest.mark.parametrize("fault", cases(EVERY))
def test_a_report_fits_on_a_screen_and_in_a_log(fault):
    reports = seen(fault) + ([examined(fault)] if fault.stands_alone else [])
    for report in reports:
        lines = str(report).splitlines()
        assert len(lines) <= LINES and max(map(len, lines)) <= COLUMNS, str(report)
        assert not any("witness failed" in note for note in report.notes)
