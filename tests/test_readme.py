"""The README: its lines run on anybody's segment, and what it links to is there."""

import re
from pathlib import Path

import pytest
import torch
from torch import nn

from recompute_lab.instruments.nondeterminism import Nudge
from recompute_lab.specimens.trunk import Trunk

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
(SNIPPET,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


def run(block, x) -> None:
    exec(SNIPPET, {"block": block, "x": x})


def test_the_lines_name_the_tensor_that_one_pass_saved(capsys):
    nudge = Nudge({1: 4, 2: -4})
    trunk = Trunk(limit=0.2, noise=nudge)
    run(nudge.counted(trunk), torch.randn(2, 16, 32, requires_grad=True))
    told = capsys.readouterr().out
    assert "Number of tensors saved during forward: 162" in told
    assert "Number of tensors saved during recomputation: 161" in told
    assert "operator='mul'" in told and "norm_cap.py" in told
    assert "raised CheckpointError (162 tensors saved in forward, 161 in recomputation)" in told


@pytest.mark.parametrize("block", [nn.Identity(), nn.Linear(4, 4), nn.Dropout(0.5), lambda x: x * 2.0])
def test_the_lines_find_nothing_where_there_is_nothing(block, capsys):
    run(block, torch.randn(8, 4, requires_grad=True))
    told = capsys.readouterr().out.splitlines()
    assert told[:2] == ["no error this time", "non-reentrant: equal to the plain run, bit for bit"]
    drawn = ["random stream", "torch", "drawn from", "also read", "as in the plain run"]
    assert told[2:] == (["  ".join(drawn)] if isinstance(block, nn.Dropout) else ["nothing but its value"])


def test_the_lines_tell_of_statistics_that_moved_twice(capsys):
    run(nn.BatchNorm1d(4), torch.randn(8, 4, requires_grad=True))
    told = capsys.readouterr().out
    assert "gradients as in the plain run" in told and "running_mean" in told
    assert "only written  differs under both" in told


@pytest.mark.parametrize("link", re.findall(r"\]\((?!http)([^)#]+)\)", README))
def test_a_link_leads_somewhere(link):
    assert (ROOT / link).is_file()
