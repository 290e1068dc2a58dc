"""The audit of files and folders, its command line and its formats; checkpoints followed across files."""

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import recompute_lab
from recompute_lab import audit, cli
from recompute_lab.instruments.audit import CANNOT_SEE, formats

HOUSE = Path(__file__).resolve().parent.parent
BRANCH = "import torch\n\n\ndef f(x):\n    if (x > 0).any():\n        x = x.exp()\n    return x\n"
QUIET = "import torch\n\n\ndef f(x):\n    return x.exp()\n"


def run(*arguments: str, cwd=None) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "recompute_lab", "audit", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=120)


def write(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        path = folder / (name.replace("__", "/") + ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


# Exit codes.


def test_exit_codes(tmp_path):
    write(tmp_path, quiet=QUIET, branch=BRANCH)
    assert run(tmp_path / "quiet.py").returncode == 0
    assert run(tmp_path / "branch.py").returncode == 1
    missing = run(tmp_path / "nosuch.py")
    assert missing.returncode == 2 and "nosuch.py" in missing.stderr and "Traceback" not in missing.stderr
    empty = tmp_path / "empty"
    empty.mkdir()
    nothing = run(empty)
    assert nothing.returncode == 2 and "no file could be read" in nothing.stderr
    assert run().returncode == 2
    assert run("--format", "xml", tmp_path).returncode == 2
    assert run("--processes", "0", tmp_path).returncode == 2


def test_the_installed_command_is_the_same_function(tmp_path, capsys):
    scripts = tomllib.loads((HOUSE / "pyproject.toml").read_text())["project"]["scripts"]
    assert scripts == {"recompute-lab": "recompute_lab.cli:main"}
    write(tmp_path, branch=BRANCH)
    assert cli.main(["audit", str(tmp_path)]) == 1
    here = capsys.readouterr().out
    assert run(tmp_path).stdout == here
    installed = Path(sys.executable).with_name("recompute-lab")
    if installed.exists():
        done = subprocess.run([installed, "audit", tmp_path], capture_output=True, text=True, timeout=120)
        assert (done.returncode, done.stdout) == (1, here)


def test_the_audit_needs_the_standard_library_alone(tmp_path):
    write(tmp_path, branch=BRANCH)
    code = (
        "import sys\nfrom recompute_lab import audit\n"
        f"assert len(audit({str(tmp_path)!r}).findings) == 1\n"
        "print({name.partition('.')[0] for name in sys.modules} - set(sys.stdlib_module_names) - {'recompute_lab'})"
    )
    plain = [sys.executable, "-S", "-c", f"import sys; sys.path.append({str(HOUSE / 'src')!r})\n{code}"]
    done = subprocess.run(plain, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() in ("set()", "{'__main__'}"), done.stdout + done.stderr


def test_nothing_that_is_read_is_run(tmp_path):
    marker = tmp_path / "ran"
    write(tmp_path, loud=f"open({str(marker)!r}, 'w')\n{BRANCH}")
    assert len(audit(tmp_path).findings) == 1
    assert not marker.exists()


# What cannot be read.


def test_one_line_for_what_cannot_be_read_and_the_rest_is_audited(tmp_path):
    write(tmp_path, branch=BRANCH, broken="def f(:\n", other="x = 1\n")
    (tmp_path / "latin.py").write_bytes("name = 'café'\n".encode("latin-1"))
    (tmp_path / "declared.py").write_bytes(b"# -*- coding: latin-1 -*-\nname = 'caf\xe9'\n")
    (tmp_path / "nulls.py").write_bytes(b"x = 1\0\n")
    (tmp_path / "huge.py").write_bytes(b"x = 1\n" * 1_500_000)
    (tmp_path / "deep.py").write_text("x = " + "(" * 500 + ")" * 500)
    (tmp_path / "long.py").write_text("x = " + "+".join(["1"] * 5000))
    (tmp_path / "not.ipynb").write_text("{")
    (tmp_path / "gone.py").symlink_to(tmp_path / "nowhere.py")
    (tmp_path / "circle").symlink_to(tmp_path)
    os.mkfifo(tmp_path / "pipe.py")
    found = audit(tmp_path)
    assert [Path(one.path).name for one in found.findings] == ["branch.py"]
    noted = {Path(note.partition(":")[0]).name for note in found.notes}
    assert {"broken.py", "latin.py", "nulls.py", "huge.py", "deep.py", "not.ipynb"} <= noted
    assert not {"branch.py", "other.py", "declared.py"} & noted
    assert all("\n" not in note for note in found.notes)
    assert all(note in str(found) for note in found.notes)


def test_a_file_given_twice_or_through_a_link_is_audited_once(tmp_path):
    write(tmp_path, branch=BRANCH)
    (tmp_path / "again.py").symlink_to(tmp_path / "branch.py")
    assert len(audit(tmp_path, tmp_path / "branch.py").findings) == 1


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission_is_a_note(tmp_path):
    write(tmp_path, secret=BRANCH)
    (tmp_path / "secret.py").chmod(0)
    assert "cannot be read" in audit(tmp_path).notes[0]


def test_a_name_that_is_no_text_is_shown_and_not_a_crash(tmp_path):
    path = os.fsencode(tmp_path) + b"/odd\xff.py"
    with open(path, "w") as file:
        file.write(BRANCH)
    done = run(tmp_path)
    assert done.returncode == 1 and "odd" in done.stdout and not done.stderr


def test_no_path_at_all_is_said():
    with pytest.raises(ValueError, match="name a file or a folder"):
        audit()
    with pytest.raises(FileNotFoundError, match="''"):
        audit("")  # `audit "$NOTHING"`: not the folder one stands in


# Folders that are not the user's own code, and patterns.


def test_environments_caches_and_hidden_folders_are_left_out(tmp_path):
    write(tmp_path, mine=BRANCH, env__lib__one=BRANCH, node_modules__two=BRANCH)
    (tmp_path / "env" / "pyvenv.cfg").write_text("")
    for name in (".hidden", "__pycache__"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "one.py").write_text(BRANCH)
    assert [Path(one.path).name for one in audit(tmp_path).findings] == ["mine.py"]


@pytest.mark.parametrize("pattern", ["tests", "tests/", "*_test.py", "tests/*", "*/deep*"])
def test_what_a_pattern_names_is_left_out(tmp_path, pattern):
    write(tmp_path, mine=BRANCH, tests__deep__one_test=BRANCH)
    found = audit(tmp_path, exclude=[pattern])
    assert [Path(one.path).name for one in found.findings] == ["mine.py"]


# Suppression.


def test_a_suppression_with_a_reason_counts_and_one_without_is_told(tmp_path):
    line = "    if (x > 0).any():"
    write(
        tmp_path,
        good=BRANCH.replace(line, f"{line}  # recompute-lab: ignore[tensor-branch] runs outside of any checkpoint"),
        bare=BRANCH.replace(line, f"{line}  # recompute-lab: ignore[tensor-branch]"),
        other=BRANCH.replace(line, f"{line}  # recompute-lab: ignore[lasting-write] another rule"),
        both=BRANCH.replace(line, f"{line}  # recompute-lab: ignore: known since always"),
    )
    found = audit(tmp_path)
    assert [Path(one.path).name for one in found.findings] == ["bare.py", "other.py"]
    assert {reason for _, reason in found.suppressed} == {"runs outside of any checkpoint", "known since always"}
    assert any("needs a reason" in note for note in found.notes)
    assert "2 suppressed" in str(found)


# Formats.


def test_json_is_one_list_with_what_a_tool_needs(tmp_path):
    write(tmp_path, branch=BRANCH)
    done = run(tmp_path, "--format", "json")
    (one,) = json.loads(done.stdout)
    assert {"path", "line", "column", "rule", "decides", "checkpoint", "guard", "suggestion", "message"} <= one.keys()
    assert (one["line"], one["column"], one["rule"], one["decides"]) == (5, 5, "tensor-branch", "graph")
    assert (one["checkpoint"], one["guard"]) == ("not seen", None)
    assert "what this cannot see" in done.stderr
    assert json.loads(run(HOUSE / "src/recompute_lab/cli.py", "--format", "json").stdout) == []


def test_githubs_annotations_are_escaped(tmp_path):
    folder = tmp_path / "a,b:c%d"
    folder.mkdir()
    write(folder, branch=BRANCH)
    done = run(tmp_path, "--format", "github")
    (line,) = done.stdout.splitlines()
    assert line.startswith("::warning file=") and "a%2Cb%3Ac%25d" in line and ",line=5,endLine=5,col=5," in line


def test_the_result_says_what_it_cannot_see_also_when_nothing_is_found(tmp_path):
    write(tmp_path, quiet=QUIET)
    said = str(audit(tmp_path))
    assert "nothing found in 1 file" in said and all(line in said for line in CANNOT_SEE)


def test_columns_count_characters(tmp_path):
    write(
        tmp_path,
        names=BRANCH.replace("    if (x > 0).any():\n        x = x.exp()", "    é = x; ü = 1 if é.any() else 2"),
    )
    (one,) = audit(tmp_path).findings
    assert one.column == 16


def test_a_pipe_that_closes_is_no_error(tmp_path):
    write(tmp_path, **{f"m{i}": BRANCH * 200 for i in range(20)})
    shell = f"{sys.executable} -m recompute_lab audit {tmp_path} | head -n 1"
    done = subprocess.run(shell, shell=True, capture_output=True, text=True, timeout=120)
    assert done.stdout.count("\n") == 1 and "Error" not in done.stderr


# Notebooks.


def notebook(*cells: str) -> str:
    code = [
        {"cell_type": "code", "source": cell.splitlines(keepends=True), "metadata": {}, "outputs": []} for cell in cells
    ]
    return json.dumps(
        {"cells": [{"cell_type": "markdown", "source": "# if x.any():"}, *code], "metadata": {}, "nbformat": 4}
    )


def test_a_notebooks_lines_are_those_of_its_cells(tmp_path):
    path = tmp_path / "one.ipynb"
    path.write_text(
        notebook("%matplotlib inline\nimport torch\nx = torch.randn(3)", "!ls\nif x.sum() > 0:\n    x = x.exp()")
    )
    (one,) = audit(path).findings
    assert (one.cell, one.line) == (3, 2) and f"{path}:cell 3:2:1" in str(one)


def test_an_annotation_names_the_cell_since_a_notebooks_file_has_other_lines(tmp_path):
    path = tmp_path / "one.ipynb"
    path.write_text(notebook("import torch\nx = torch.randn(3)", "if x.sum() > 0:\n    x = x.exp()"))
    (line,) = run(path, "--format", "github").stdout.splitlines()
    assert "cell 3, line 1: if:" in line and ",line=" not in line


def test_a_notebook_without_a_list_of_cells_is_none(tmp_path):
    (tmp_path / "one.ipynb").write_text('{"cells": {"a": 1}}')
    found = audit(tmp_path)
    assert found.files == 0 and "not a notebook" in found.notes[0]


def test_a_cell_that_is_no_python_does_not_hide_the_others(tmp_path):
    path = tmp_path / "one.ipynb"
    path.write_text(notebook("import torch\nx = torch.randn(3)", "%%bash\nif [ 1 ]; then", "def f(:", "assert x.any()"))
    found = audit(path)
    assert [(one.cell, one.line) for one in found.findings] == [(5, 1)]
    assert len(found.notes) == 1 and "cell 4" in found.notes[0]


# Checkpoints, across files.

BLOCK = """
import torch.nn as nn

class Block(nn.Module):
    def forward(self, x):
        if x.max() > 1:
            x = x.exp()
        return self.inner(x)

    def inner(self, x):
        return x.sin() if x.min() < 0 else x

class Alone(nn.Module):
    def forward(self, x):
        assert x.isfinite().all()
        return x
"""


def verdicts(folder: Path) -> dict[str, str]:
    return {one.function: one.checkpoint for one in audit(folder).findings if one.rule == "tensor-branch"}


@pytest.mark.parametrize(
    "model",
    [
        "from torch.utils.checkpoint import checkpoint\nfrom .block import Block\n\n"
        "class Net(nn.Module):\n    def __init__(self):\n        self.block = Block()\n"
        "    def forward(self, x):\n        return checkpoint(self.block, x, use_reentrant=False)\n",
        "from torch.utils.checkpoint import checkpoint\nfrom .block import Block\n\n"
        "class Net(nn.Module):\n    def __init__(self, n):\n"
        "        self.blocks = nn.ModuleList([Block() for _ in range(n)])\n"
        "    def forward(self, x):\n        for block in self.blocks:\n"
        "            x = checkpoint(block.__call__, x, use_reentrant=False)\n        return x\n",
        "from .block import Block\n\nclass Net(nn.Module):\n    def __init__(self, n):\n"
        "        self.blocks = nn.ModuleList([Block() for _ in range(n)])\n"
        "    def forward(self, x):\n        for block in self.blocks:\n"
        "            x = self._gradient_checkpointing_func(block, x)\n        return x\n",
    ],
)
def test_what_is_given_to_a_checkpoint_is_direct_and_what_it_calls_is_through_a_parent(tmp_path, model):
    write(tmp_path, pkg____init__="", pkg__block=BLOCK, pkg__net="import torch\nimport torch.nn as nn\n" + model)
    assert verdicts(tmp_path) == {"Block.forward": "direct", "Block.inner": "parent", "Alone.forward": "not seen"}


def test_a_closure_and_a_subclass_are_followed(tmp_path):
    closure = (
        "import torch.nn as nn\nfrom torch.utils.checkpoint import checkpoint\nfrom .block import Block\n\n"
        "def wrapped(module):\n    def forward(*inputs):\n        return module(*inputs)\n    return forward\n\n"
        "class Net(nn.Module):\n    def __init__(self):\n        self.block = Block()\n"
        "    def forward(self, x):\n        return checkpoint(wrapped(self.block), x, use_reentrant=True)\n"
    )
    write(tmp_path, pkg____init__="", pkg__block=BLOCK, pkg__net=closure)
    assert verdicts(tmp_path)["Block.forward"] == "parent"
    layer = "class GradientCheckpointingLayer:\n    pass\n"
    sub = BLOCK.replace("class Block(nn.Module)", "class Block(GradientCheckpointingLayer)")
    sub = "from .layers import GradientCheckpointingLayer\n" + sub
    write(tmp_path, two____init__="", two__layers=layer, two__block=sub)
    assert verdicts(tmp_path / "two")["Block.forward"] == "direct"


def test_a_function_of_the_files_own_that_is_called_checkpoint_is_no_checkpoint(tmp_path):
    saved = "from .block import Block\n\ndef checkpoint(model, path):\n    ...\n\ncheckpoint(Block(), 'here')\n"
    write(tmp_path, pkg____init__="", pkg__block=BLOCK, pkg__train="import torch\n" + saved)
    assert set(verdicts(tmp_path).values()) == {"not seen"}


def test_checkpointed_only_keeps_what_a_checkpoint_is_seen_to_run(tmp_path):
    net = (
        "import torch.nn as nn\nfrom torch.utils.checkpoint import checkpoint\nfrom .block import Block\n\n"
        "def run(x):\n    return checkpoint(Block(), x)\n"
    )
    write(tmp_path, pkg____init__="", pkg__block=BLOCK, pkg__net=net)
    assert {one.function for one in audit(tmp_path, checkpointed_only=True).findings} == {
        "Block.forward",
        "Block.inner",
    }


# Both cores.


def test_several_processes_give_what_one_gives(tmp_path):
    for number in range(40):
        write(tmp_path, **{f"m{number}": BRANCH.replace("def f", f"def f{number}") + "# filler\n" * 9000})
    seen = []
    one = audit(tmp_path, processes=1)
    two = audit(tmp_path, processes=2, progress=lambda done, total: seen.append((done, total)))
    assert one == two and len(one.findings) == 40
    assert seen[-1] == (40, 40) and len(seen) > 1


def test_a_process_that_dies_costs_nothing_but_time(tmp_path, monkeypatch):
    for number in range(40):
        write(tmp_path, **{f"m{number}": BRANCH + "# filler\n" * 9000})
    monkeypatch.setattr(sys, "executable", "/bin/false")
    assert len(audit(tmp_path, processes=2).findings) == 40


def test_the_names_of_the_package_are_all_there():
    assert sorted(recompute_lab._WHERE) == sorted(recompute_lab.__all__)
    for name in recompute_lab.__all__:
        assert getattr(recompute_lab, name) is not None
    with pytest.raises(AttributeError, match="nothing_of_the_kind"):
        _ = recompute_lab.nothing_of_the_kind
    assert set(recompute_lab.__all__) <= set(dir(recompute_lab))


def test_progress_is_quiet_where_nobody_watches(capsys):
    progress = cli.Progress(quiet_s=0)
    progress(1, 2)
    progress.clear()
    assert capsys.readouterr().err == ""


def test_the_summary_counts(tmp_path):
    write(tmp_path, branch=BRANCH, quiet=QUIET)
    assert formats.summary(audit(tmp_path)).startswith("1 tensor-branch in 2 files, 14 lines")
