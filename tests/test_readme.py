"""The README: its lines run on anybody's segment, and what it links to is there."""

import re
from pathlib import Path

import checks
import nbformat
import pytest
import torch
from torch import nn
from torch.utils.checkpoint import CheckpointError, checkpoint

from recompute_lab.instruments.nondeterminism import Nudge
from recompute_lab.specimens.trunk import Trunk

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
RIDE, SNIPPET, TWICE = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
# What stands in a test suite raises; the lines after it are tried without.
ASSERT = next(line for line in SNIPPET.splitlines() if line.startswith("assert_replayable"))


def run(block, x) -> None:
    exec(SNIPPET.replace(ASSERT, ""), {"block": block, "x": x})


def ride(block, x) -> None:
    loop = "try:\n    y.square().sum().backward()\nexcept CheckpointError as raised:\n    print(raised.__notes__[0])\n"
    names = {"block": block, "x": x, "checkpoint": checkpoint, "CheckpointError": CheckpointError}
    exec(re.sub(r"^\.\.\..*\n", loop, RIDE, flags=re.MULTILINE), names)


def flipping() -> tuple[nn.Module, torch.Tensor]:
    nudge = Nudge({1: 4, 2: -4})
    return nudge.counted(Trunk(limit=0.2, noise=nudge)), torch.randn(2, 16, 32, requires_grad=True)


def test_the_lines_name_the_tensor_that_one_pass_saved(capsys):
    run(*flipping())
    told = capsys.readouterr().out
    assert "non-reentrant: loud" in told
    assert "Number of tensors saved during forward: 162" in told
    assert "Number of tensors saved during recomputation: 161" in told
    assert "operator='mul'" in told and "norm_cap.py" in told
    assert "raised CheckpointError (162 tensors saved in forward, 161 in recomputation)" in told


def test_riding_along_says_why(capsys):
    ride(*flipping())
    note, _, report = capsys.readouterr().out.partition("\n\n")
    told = note + report
    assert "162 tensors saved in forward, 161 in recomputation" in told and "pass_number" in told
    assert told.count("non-reentrant: loud") == 2, "once with the exception, once in the report"


@pytest.mark.parametrize("block", [nn.Identity(), nn.Linear(4, 4), nn.Dropout(0.5), lambda x: x * 2.0])
def test_the_lines_find_nothing_where_there_is_nothing(block, capsys):
    run(block, torch.randn(8, 4, requires_grad=True))
    told = capsys.readouterr().out.splitlines()
    assert "REPLAYABLE" in told[0] and told[1] == "  non-reentrant: replayable    reentrant: replayable"
    assert told[2:4] == ["no error this time", "non-reentrant: equal to the plain run, bit for bit"]
    drawn = ["random stream", "torch", "drawn from", "also read", "as in the plain run"]
    assert told[4:] == (["  ".join(drawn)] if isinstance(block, nn.Dropout) else ["nothing but its value"])


def test_the_lines_tell_of_statistics_that_moved_twice(capsys):
    block, x = nn.BatchNorm1d(4), torch.randn(8, 4, requires_grad=True)
    run(block, x)
    told = capsys.readouterr().out
    assert "gradients as in the plain run" in told and "running_mean" in told
    assert "only written  differs under both" in told
    with pytest.raises(AssertionError, match="SIDE EFFECT"):
        exec(SNIPPET.splitlines()[0] + "\n" + ASSERT, {"block": block, "x": x})


def test_the_lines_on_evaluations_tell_whether_one_agrees_with_itself(capsys):
    generator, model, batches = torch.Generator(), nn.Linear(4, 1), [torch.randn(8, 4)]

    def evaluate(model, batches):
        return {"mean": sum(model(rows).mean().item() for rows in batches)}

    def drawing(model, batches):
        return {"mean": evaluate(model, batches)["mean"] + torch.rand(1, generator=generator).item()}

    for evaluation, told in ((evaluate, "AGREES"), (drawing, "proven: generator generator")):
        exec(TWICE, {"evaluate": evaluation, "model": model, "batches": batches})
        assert told in capsys.readouterr().out


MEASURED = README.partition("## What is measured here")[2].partition("## How it is built")[0]


@pytest.mark.parametrize("line", re.findall(r"^- (.*(?:\n  .*)*)", MEASURED, re.MULTILINE), ids=lambda line: line[:30])
def test_what_is_measured_here_was_printed_by_the_lesson_named(line):
    (lesson,) = re.findall(r"\((\d\d)\)", line)
    (path,) = (ROOT / "notebooks").glob(f"{lesson}_*.ipynb")
    compared = [cell for cell in nbformat.read(path, as_version=4).cells if not checks.is_ignored(cell)]
    printed = set(re.findall(r"\d+(?:\.\d+)?", "\n".join(map(checks.text_of, compared))))
    claimed = set(re.findall(r"\d+(?:\.\d+)?", re.sub(r"\(\d\d\)|1 − √\(1 − m\)", "", line)))
    assert claimed <= printed, f"lesson {lesson} prints no {', '.join(sorted(claimed - printed))}"


@pytest.mark.parametrize("link", re.findall(r"\]\((?!http)([^)#]+)\)", README))
def test_a_link_leads_somewhere(link):
    assert (ROOT / link).is_file()
