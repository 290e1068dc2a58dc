"""What befalls learners: a sentence says what to do, and nothing is left behind.

A kernel that was restarted, a package that is missing, a folder that cannot be written, no home folder, no display, a
terminal without Unicode, a working directory that is none of ours.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from recompute_lab import cli
from recompute_lab.lessons import progress
from recompute_lab.lessons.advice import RUN_ABOVE, advice
from recompute_lab.lessons.exercise import Exercises
from recompute_lab.lessons.progress import VARIABLE, Journal

# A notebook's shell. Its arguments are pairs: a package that is not installed from now on, or none, and a cell.
SHELL = """
import sys
from importlib.machinery import PathFinder
from importlib import metadata
hidden, found, version = "", PathFinder.find_spec, metadata.version

def find_spec(name, path=None, target=None):
    return None if name.partition(".")[0] == hidden else found(name, path, target)

def version_of(name):
    if name == hidden:
        raise metadata.PackageNotFoundError(name)
    return version(name)

PathFinder.find_spec, metadata.version = find_spec, version_of
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
for hidden, cell in zip(sys.argv[1::2], sys.argv[2::2]):
    shell.run_cell(cell)
    print("=====")
"""


def cells(*sources: tuple[str, str]) -> list[str]:
    """What each cell prints."""
    command = [sys.executable, "-c", SHELL, *(part for pair in sources for part in pair)]
    environment = os.environ | {"NO_COLOR": "1", "IPYTHONDIR": os.devnull + "/none"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    said = done.stdout.split("=====\n")[:-1]
    assert len(said) == len(sources), done.stdout + done.stderr
    return said


# --- A missing package

NEEDS = {
    "matplotlib": "from recompute_lab.views import spacing",
    "PIL": "from recompute_lab.views import canvas",
    "ipywidgets": "from recompute_lab.views import card_panel",
    "fsrs": "from recompute_lab.lessons.spacing import intervals; intervals(['Good'])",
    "scipy": "from recompute_lab.instruments.odds import binomial_interval; binomial_interval(1, 2, 0.9)",
    "sklearn": "from recompute_lab.specimens.digits import digit_images; digit_images()",
    "transformers": "from recompute_lab.specimens.public_models import Mixtral; Mixtral()",
}
CALLED = {"sklearn": "scikit-learn", "PIL": "pillow"}


@pytest.mark.parametrize("missing", [{"PIL"}, NEEDS.keys() - {"PIL"}])  # half of matplotlib is loaded without PIL
def test_each_missing_package_is_named_with_what_to_do(missing):
    missing = [module for module in NEEDS if module in missing]
    _, *told = cells(("", "import recompute_lab.lessons"), *((module, NEEDS[module]) for module in missing))
    for module, said in zip(missing, told, strict=True):
        *_, sentence = said.strip().splitlines()
        package = CALLED.get(module, module)
        assert sentence.startswith(f"{package} is not installed in this Python, {sys.executable}. Start"), said
        assert f"-m pip install {package}`" in sentence


def test_without_torch_the_first_lesson_names_torch_and_blames_nobody_else():
    checked, stopped = cells(
        ("torch", "from recompute_lab.lessons import installation; print('\\n'.join(installation.problems()))"),
        ("torch", "from recompute_lab.lessons import start_here"),
    )
    assert [line for line in checked.splitlines() if line] == [
        "torch is not installed in this notebook's Python. Start the notebook as the README says; if you did, install "
        "again."
    ]
    assert "\ntorch is not installed in this Python" in stopped


def test_a_package_of_the_learners_own_is_not_recommended():
    """A misspelt name must not lead to `pip install` of whatever is called so."""
    said = advice(ModuleNotFoundError("No module named 'troch'", name="troch"))
    assert "pip" not in said and "lesson 00 checks the installation" in said


def test_the_command_line_says_it_in_one_line(monkeypatch, capsys):
    def missing(*_):
        raise ModuleNotFoundError("No module named 'fsrs'", name="fsrs")

    monkeypatch.setattr("recompute_lab.lessons.overview.overview", missing)
    monkeypatch.setenv(VARIABLE, "somewhere")
    assert cli.main(["progress"]) == cli.WRONG_USE
    assert re.fullmatch(r"recompute-lab: fsrs is not installed in this Python.*\n", capsys.readouterr().err)


# --- A kernel that was restarted


def test_a_name_that_is_not_there_points_to_the_cells_above():
    first, wrong, own, twice = cells(
        ("", "import recompute_lab.lessons"),
        ("", "both"),
        ("", "def f():\n    y\n    y = 1\nf()"),
        ("", "import recompute_lab.lessons\nboth"),
    )
    assert first == "" and own.strip().endswith("not associated with a value")
    for said in (wrong, twice):
        assert said.count(RUN_ABOVE) == 1 and said.strip().splitlines()[-1].startswith("If the kernel was restarted")


def test_an_answer_that_needs_a_cell_above_is_told_so():
    check = Exercises()

    @check.add()
    def call(function):
        return str(function())

    said = check.call.judge(lambda: not_run_yet)  # noqa: F821
    assert said.message.startswith("your answer raised NameError: name 'not_run_yet' is not defined. If the kernel was")
    assert RUN_ABOVE in said.message


# --- Where nothing can be kept


def test_a_journal_that_cannot_be_written_says_so_before_it_is_tried(tmp_path, monkeypatch):
    journal = Journal(tmp_path / "deep" / "down" / "progress.jsonl")
    assert journal.notes() == []
    tmp_path.chmod(0o500)
    if os.access(tmp_path, os.W_OK):  # root may write all the same
        monkeypatch.setattr(progress.os, "access", lambda path, mode: path != tmp_path or mode != os.W_OK)
    (said,) = journal.notes()
    assert said.endswith("progress.jsonl cannot be written: what you pass and grade is not kept.")
    tmp_path.chmod(0o700)
    assert not list(tmp_path.iterdir())


def test_without_a_home_folder_nothing_is_kept_and_no_folder_is_made(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setenv("JPY_SESSION_NAME", "notebooks/01_the_crash.ipynb")
    monkeypatch.setattr(progress, "__file__", str(tmp_path / "a" / "b" / "c" / "d" / "progress.py"))
    monkeypatch.setattr("platformdirs.user_data_path", lambda *_, **__: Path("~", ".local"))  # as older ones say it
    assert progress.session_path() is None
    progress.note_passed("module", "name")
    assert cli.main(["progress"]) == cli.WRONG_USE
    assert "no home folder" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_home_folder_that_is_not_known(monkeypatch):
    assert progress.chosen_path({VARIABLE: "~nobody-of-this-name/progress.jsonl"}) is None


# --- Another place, no display, no Unicode

ANYWHERE = """
import sys
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
shell.run_cell('''
from recompute_lab.lessons import overview
from recompute_lab.views.card_panel import CardPanel
from recompute_lab.views.style import figure, show
made, axes = figure()
axes.plot([1, 2])
show(made, "A figure.")
print(overview.overview())
''')
"""


@pytest.fixture
def bare(tmp_path) -> dict:
    """An environment without a home, a display, or Unicode, in an empty folder; as arguments of subprocess.run."""
    left_out = {"HOME", "DISPLAY", "WAYLAND_DISPLAY", "LANG", "MPLCONFIGDIR", VARIABLE, "JPY_SESSION_NAME"}
    environment = {name: value for name, value in os.environ.items() if name not in left_out}
    environment |= {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "MPLBACKEND": "TkAgg"}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, map(os.path.abspath, sys.path)))
    (tmp_path / "empty").mkdir()
    return {"env": environment, "cwd": tmp_path / "empty", "capture_output": True, "text": True}


def test_figures_and_panels_need_neither_a_display_nor_a_place(bare):
    bare["env"] |= {"IPYTHONDIR": str(bare["cwd"].parent / "ipython"), VARIABLE: str(bare["cwd"].parent / "p.jsonl")}
    done = subprocess.run([sys.executable, "-c", ANYWHERE], **bare)
    assert "Traceback" not in done.stdout and "A figure." in done.stdout and "0 of" in done.stdout, done.stdout
    assert not list(bare["cwd"].iterdir())


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_the_command_line_prints_on_any_terminal(bare, encoding):
    bare["env"]["PYTHONIOENCODING"] = encoding
    done = subprocess.run([sys.executable, "-m", "recompute_lab", "cards"], encoding=encoding, **bare)
    assert done.returncode == 0 and not done.stderr and "\\u2212" in done.stdout
