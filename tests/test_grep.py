"""The grep finds what it says, walks past what it says, and its shell line finds the same."""

import ast
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from recompute_lab.instruments import grep as grep_module
from recompute_lab.instruments.grep import METHODS, SHELL, Hits, grep, matches
from recompute_lab.lessons import installation

FOUND = [
    "if (scale < 1.0).any():",
    "    if mask.all():  # as in many models",
    "elif loss.item():",
    "if self.training and x.any():",
    "if not torch.isfinite(x).all():",
    "# if x.any(): an old thought",
    'text = "if x.sum():"',
    "if totals.max():",
    "if\tx.min():",
    "half = [y for y in ys if y.mean():",  # not even Python
]
PASSED = [
    "if x.norm() > 0:",
    "if bool(x):",
    "if torch.any(x):",
    "if x.item() > 0.5:",
    "if x.any(dim=0):",
    "if x.any() and y:",
    "if(x.any()):",
    "while x.any():",
    "y = a if x.any() else b",
    "fires = x.any()",
    "if fires:",
    "if x.any()",
    "if any(x):",
]


def write(folder: Path, name: str, text: str | bytes) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


@pytest.fixture
def sample(tmp_path: Path) -> Path:
    write(tmp_path, "a.py", "\n".join(FOUND + PASSED) + "\n")
    write(tmp_path, "deep/er/b.py", "x = 1\r\nif x.any():\r\n    pass")
    write(tmp_path, "deep/form_feed.py", "x\x0cif y.all():\n\u2028if z.all():\nif x.sum():\n")
    write(tmp_path, "deep/__pycache__/c.py", "if x.any():\n")
    write(tmp_path, ".hidden/d.py", "if x.any():\n")
    write(tmp_path, ".in_sight.py", "if x.any():\n")
    write(tmp_path, "notes.txt", "if x.any():\n")
    write(tmp_path, "bom.py", b"\xef\xbb\xbfif x.any():\n")
    return tmp_path


@pytest.mark.parametrize("line", FOUND)
def test_found(line):
    assert matches(line)


@pytest.mark.parametrize("line", PASSED)
def test_walked_past(line):
    assert not matches(line)


@pytest.mark.parametrize("part", ["if ", "if .any() ", ".any()", "if" + " " * 50, "if x.any("])
def test_a_long_line_takes_no_time(part):
    start = time.perf_counter()
    assert not matches(part * (300_000 // len(part)))
    assert time.perf_counter() - start < 2


def test_a_long_line_is_shown_in_part(tmp_path):
    text = f"if x.any():  # {'z' * 10_000}"
    hits = grep(write(tmp_path, "long.py", text))
    assert hits[0].text == text and len(str(hits[0])) < 250


@pytest.mark.parametrize("method", METHODS)
def test_each_of_the_seven(method):
    assert matches(f"if x.{method}():") and not matches(f"if x.{method}x():")


def test_a_folder(sample):
    hits = grep(sample)
    assert [hit.line for hit in hits if hit.file == "a.py"] == list(range(1, len(FOUND) + 1))
    others = [(hit.file, hit.line) for hit in hits if hit.file != "a.py"]
    assert others == [
        (".in_sight.py", 1),
        ("bom.py", 1),
        ("deep/er/b.py", 2),
        ("deep/form_feed.py", 1),
        ("deep/form_feed.py", 2),
        ("deep/form_feed.py", 3),
    ]
    assert hits[-4].text == "if x.any():"
    assert str(hits).endswith(f"{len(hits)} hits in 5 files") and str(sample) not in str(hits)


@pytest.mark.skipif(not shutil.which("grep"), reason="there is no grep on this machine")
def test_the_shell_line_finds_the_same(sample):
    done = subprocess.run(
        ["sh", "-c", SHELL],
        cwd=sample,
        capture_output=True,
        text=True,
        env=os.environ | {"LC_ALL": "C.UTF-8"},
    )
    assert not done.stderr
    shell = [line.split(":", 2)[:2] for line in done.stdout.split("\n") if line]
    assert sorted((Path(file).as_posix(), int(line)) for file, line in shell) == sorted(
        (hit.file, hit.line) for hit in grep(sample)
    )


def test_one_file_whatever_its_name(sample):
    assert [hit.file for hit in grep(sample / "deep/er/b.py")] == ["b.py"]
    assert str(grep(sample / "notes.txt")) == "notes.txt:1:  if x.any():\n1 hit in 1 file"


def test_home_and_strings(sample, monkeypatch):
    monkeypatch.setenv("HOME", str(sample))
    assert grep("~/deep/er") == grep(sample / "deep" / "er") != []


def test_a_missing_path():
    with pytest.raises(FileNotFoundError, match="^there is no file or folder 'no/such' to search$"):
        grep("no/such")
    for path in ("~no-such-user/x", "x" * 5000, "a\0b"):
        with pytest.raises(FileNotFoundError, match="^there is no file or folder '"):
            grep(path)


def test_no_python_files_is_not_a_clean_result(tmp_path):
    hits = grep(tmp_path)
    assert hits == [] and "nothing was searched" in str(hits)


def test_a_clean_result(tmp_path):
    write(tmp_path, "clean.py", "x = 1\n")
    assert str(grep(tmp_path)) == "0 hits in 1 file"


def test_other_encodings_are_skipped_and_counted(tmp_path):
    write(tmp_path, "latin.py", "# caf\xe9\nif x.any():\n".encode("latin-1"))
    write(tmp_path, "good.py", "if x.any():\n")
    hits = grep(tmp_path)
    assert hits.skipped == ("latin.py",) and hits.files == 1 and len(hits) == 1
    assert str(hits).endswith("1 hit in 1 file; 1 path skipped, not readable as UTF-8 text")
    assert grep(tmp_path / "latin.py").skipped == ("latin.py",)


def test_unreadable_files_and_folders_are_skipped_and_counted(tmp_path, monkeypatch):
    write(tmp_path, "locked.py", "if x.any():\n")
    write(tmp_path, "closed/e.py", "if x.any():\n")
    read_bytes, scandir = Path.read_bytes, os.scandir

    def refuse(path):
        if Path(path).name in ("locked.py", "closed"):
            raise PermissionError(13, "Permission denied", str(path))
        return read_bytes(path) if isinstance(path, Path) else scandir(path)

    monkeypatch.setattr(Path, "read_bytes", refuse)
    monkeypatch.setattr(os, "scandir", refuse)
    hits = grep(tmp_path)
    assert hits == [] and hits.files == 0 and set(hits.skipped) == {"locked.py", "closed"}
    assert "2 paths skipped" in str(hits)


def test_links_end(tmp_path):
    write(tmp_path, "real.py", "if x.any():\n")
    try:
        (tmp_path / "loop").symlink_to(tmp_path, target_is_directory=True)
        (tmp_path / "same.py").symlink_to(tmp_path / "real.py")
        (tmp_path / "ring").symlink_to(tmp_path / "ring")
        (tmp_path / "dead.py").symlink_to(tmp_path / "gone.py")
    except OSError:
        pytest.skip("no links here")
    assert [hit.file for hit in grep(tmp_path)] == ["real.py"] and grep(tmp_path).files == 1
    assert len(grep(tmp_path / "loop")) == 1  # a link that was asked for is followed
    with pytest.raises(FileNotFoundError):
        grep(tmp_path / "ring")


def test_a_pipe_is_not_waited_for(tmp_path):
    if not hasattr(os, "mkfifo"):
        pytest.skip("no pipes here")
    os.mkfifo(tmp_path / "pipe.py")
    reader = threading.Thread(target=lambda: pytest.raises(FileNotFoundError, grep, tmp_path / "pipe.py"), daemon=True)
    reader.start()
    reader.join(10)
    assert not reader.is_alive()
    assert isinstance(grep(tmp_path), Hits)


@pytest.mark.parametrize("module", [grep_module, installation], ids=lambda m: m.__name__)
def test_nothing_but_the_standard_library_at_import(module):
    tree = ast.parse(Path(module.__file__).read_text(encoding="utf-8"))
    names = set()
    for node in tree.body:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module)
    assert {name.split(".")[0] for name in names} <= set(sys.stdlib_module_names)
