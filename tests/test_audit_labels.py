"""The audit against labels made by hand, by reading, on real files: transformers' models and torch's own source.

A label counts as found where a finding's condition and the label's overlap; a finding without a label of any kind is
a false one. Sizes without a decision, doubtful cases, and branches on what other branches set ("implicit") count
neither way. What the labels are, and how they were made: tests/audit/labels/README.md.
"""

import importlib.metadata
import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
import torch

from recompute_lab.instruments import grep
from recompute_lab.instruments.audit.one_file import audit_source
from recompute_lab.instruments.audit.sources import Source, read

LABELS = sorted((Path(__file__).parent / "audit" / "labels").glob("*.json"))
PACKAGES = Path(torch.__file__).parent.parent


@dataclass
class Score:
    found: int = 0
    missed: int = 0
    false: int = 0

    @property
    def recall(self) -> float:
        return self.found / (self.found + self.missed)

    @property
    def precision(self) -> float:
        return self.found / (self.found + self.false)


@cache
def labels() -> list[dict]:
    loaded = [json.loads(path.read_text()) for path in LABELS]
    for one in loaded:
        if importlib.metadata.version(one["package"]).partition("+")[0] != one["version"]:
            pytest.skip(f"the labels are of {one['package']} {one['version']}")
    return loaded


def path_of(label: dict) -> Path:
    path = PACKAGES / label["path"]
    return path if path.exists() else PACKAGES / label["package"] / label["path"]


def score(half: str, models_only: bool, spans) -> Score:
    """`spans(path, text)`: first and last line of each reported condition."""
    total = Score()
    for label in labels():
        if label["half"] != half or (models_only and "/models/" not in label["path"]):
            continue
        source = read(path_of(label))
        reported = spans(label["path"], source)
        sites = label["sites"]
        branches = [site for site in sites if site["kind"] == "branch" and not site.get("implicit")]
        hit = [any(a <= site["end_line"] and b >= site["line"] for a, b in reported) for site in branches]
        total.found += sum(hit)
        total.missed += len(hit) - sum(hit)
        total.false += len({a for a, b in reported if not any(a <= s["end_line"] and b >= s["line"] for s in sites)})
    return total


@cache
def audited(path: str, source: Source) -> tuple[tuple[int, int], ...]:
    found = audit_source(source, path, path).findings
    return tuple((one.line, one.end_line) for one in found if one.rule == "tensor-branch")


def grepped(path: str, source: Source) -> list[tuple[int, int]]:
    return [(n, n) for n, line in enumerate(source.text.split("\n"), 1) if grep.matches(line)]


def test_the_labels_are_of_the_files_that_are_here():
    assert len(labels()) >= 100
    for label in labels():
        text = path_of(label).read_text(encoding="utf-8")
        assert text.count("\n") in (label["lines"], label["lines"] - 1), label["path"]
        for site in label["sites"]:
            assert site["kind"] in ("branch", "size", "doubtful")
            assert site["decides"] in ("graph", "raise", "shape", "telemetry", "state")
            assert 1 <= site["line"] <= site["end_line"] <= label["lines"]


@pytest.mark.parametrize("half", ["development", "held_out"])
def test_in_model_files_most_decisions_are_found_and_few_reports_are_false(half):
    result = score(half, True, audited)
    assert result.found + result.missed >= 35
    assert result.recall >= 0.85 and result.precision >= 0.90, result


@pytest.mark.parametrize("half", ["development", "held_out"])
def test_in_all_files_reports_are_rarely_false(half):
    """With optimisers, losses and generation: numbers that go through many functions are missed more often."""
    result = score(half, False, audited)
    assert result.recall >= 0.75 and result.precision >= 0.90, result


@pytest.mark.parametrize("half", ["development", "held_out"])
def test_the_grep_walks_past_most_of_them(half):
    result = score(half, True, grepped)
    assert result.recall < 0.5 <= result.precision, result


# Snippets of our own, written without seeing the audit: odd numbers for its author, even ones held out.

SNIPPETS = Path(__file__).parent / "audit" / "snippets"


def snippets(half: str, rule: str) -> Score:
    total = Score()
    for label in json.loads((SNIPPETS / "labels.json").read_text()):
        if (int(label["file"][1:4]) % 2 == 1) != (half == "development"):
            continue
        source = read(SNIPPETS / label["file"])
        found = [one for one in audit_source(source, label["file"], label["file"]).findings if one.rule == rule]
        wanted = [one["line"] for one in label["reports"] if one["rule"] == rule]
        allowed = wanted + [one["line"] for one in label["optional"] if one["rule"] == rule]
        hit = [any(one.line <= line <= one.end_line for one in found) for line in wanted]
        total.found += sum(hit)
        total.missed += len(hit) - sum(hit)
        total.false += sum(not any(one.line <= line <= one.end_line for line in allowed) for one in found)
    return total


@pytest.mark.parametrize(
    ("half", "rule", "recall"),
    [
        ("development", "tensor-branch", 0.95),
        ("held_out", "tensor-branch", 0.90),
        ("development", "lasting-write", 0.95),
        ("held_out", "lasting-write", 0.90),
    ],
)
def test_most_snippets_are_judged_as_labelled(half, rule, recall):
    result = snippets(half, rule)
    assert result.recall >= recall and result.precision >= 0.95, result
