"""A difference that is planted in one place is noticed, whatever the place; and whatever leaves something out before it
compares leaves out nothing else.

nbval's own `IPyNbCell.runtest` is run on every cell of every stored notebook. In place of a kernel it listens to a
recording, which says what the notebook has stored, or says it with one thing changed.
"""

import json
import os
import random
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Empty

import build
import checks
import ignored
import nbformat
import pytest
from nbformat import NotebookNode
from nbformat.v4 import new_output
from nbval.plugin import IPyNbCell, IPyNbFile, NbCellError
from studies import store

from recompute_lab.instruments.witness.trace import place
from recompute_lab.lessons import audit_source, batchnorm_study, dropout_study, field_guide, stored_study
from recompute_lab.lessons.drills import measure

HOUSE = build.ROOT.parent
NOTEBOOKS = sorted([*build.ROOT.glob("*.ipynb"), *build.ROOT.glob("solutions/*.ipynb")])
NOT_COMPARED = {"image/png", "image/jpeg"}  # by nbval; everything else that a cell puts out is


class Recording:
    """A kernel that answers each cell with given outputs: the part of nbval's kernel that `runtest` uses."""

    def __init__(self, outputs: list[NotebookNode]):
        self.messages = [message(output) for output in outputs]
        self.messages.append({"msg_type": "status", "content": {"execution_state": "idle"}})

    def is_alive(self) -> bool:
        return True

    def execute_cell_input(self, source: str, allow_stdin: bool) -> str:
        return "the cell"

    def await_reply(self, message_id: str, timeout: float) -> None:
        pass

    def get_message(self, stream: str, timeout: float) -> dict:
        if not self.messages:
            raise Empty
        return self.messages.pop(0) | {"parent_header": {"msg_id": "the cell"}}


def message(output: NotebookNode) -> dict:
    """The message from which a kernel's client makes this output."""
    content = nbformat.from_dict(output)
    return {"msg_type": content.pop("output_type"), "content": content}


def accepts(cell: IPyNbCell, outputs: list[NotebookNode]) -> bool:
    """Whether nbval, strict, takes these outputs for the ones that are stored."""
    cell.parent.kernel = Recording(outputs)
    try:
        cell.runtest()
    except NbCellError as error:
        assert str(error) == "Cell outputs differ"
        return False
    finally:
        cell.parent.kernel = None
    return True


@pytest.fixture(scope="module", params=NOTEBOOKS, ids=lambda path: path.relative_to(build.ROOT).as_posix())
def cells(request) -> list[IPyNbCell]:
    """The cells of one stored notebook, as nbval collects them."""
    return list(IPyNbFile.from_parent(request.session, path=request.param).collect())


def compared(cells: list[IPyNbCell]) -> list[IPyNbCell]:
    return [cell for cell in cells if not checks.is_ignored(cell.cell)]


# --- What may be planted --------------------------------------------------------------


def texts(outputs: list[NotebookNode]) -> Iterator[tuple[NotebookNode, str]]:
    """Where the outputs hold text: a dictionary and its key."""
    for output in outputs:
        yield from ((output, key) for key in ("text", "ename", "evalue") if key in output)
        data = output.get("data", {})
        yield from ((data, mime) for mime, value in data.items() if mime not in NOT_COMPARED and isinstance(value, str))


def replaced(pattern: str, new: Callable[[re.Match], str], chance: random.Random) -> Callable:
    """A change of one match of the pattern, in each text that has one: yields the outputs that result."""

    def change(outputs: list[NotebookNode]) -> Iterator[list[NotebookNode]]:
        for i in range(len(list(texts(outputs)))):
            planted = [nbformat.from_dict(output) for output in outputs]
            holder, key = list(texts(planted))[i]
            if found := list(re.finditer(pattern, holder[key])):
                match = chance.choice(found)
                holder[key] = holder[key][: match.start()] + new(match) + holder[key][match.end() :]
                yield planted

    return change


def another_digit(match: re.Match) -> str:
    return str((int(match[0]) + 1) % 10)


def without_one(outputs: list[NotebookNode]) -> Iterator[list[NotebookNode]]:
    """One output is not put out. A picture of which nothing else is stored is none that nbval could miss."""
    for i, output in enumerate(outputs):
        if "data" not in output or set(output.data) - NOT_COMPARED:
            yield outputs[:i] + outputs[i + 1 :]


def with_one_more(outputs: list[NotebookNode]) -> Iterator[list[NotebookNode]]:
    yield [*outputs, new_output("stream", name="stdout", text="one more\n")]
    yield [*outputs, new_output("stream", name="stderr", text="Warning: mind\n")]
    yield [*outputs, new_output("display_data", {"text/plain": "one more"})]
    yield [*outputs, new_output("display_data", {"image/png": "iVBORw0KGgo=", "text/plain": "<Figure>"})]


chance = random.Random(0)
PLANTS = {
    "a digit": replaced(r"\d", another_digit, chance),
    "a word": replaced(r"[A-Za-z]+", lambda match: match[0] + "x", chance),
    "a boolean": replaced(r"\b(?:True|False)\b", lambda match: str(match[0] == "False"), chance),
    "a line less": replaced(r"[^\n]+\n|\n?[^\n]+\Z", lambda match: "", chance),
    "a line more": replaced(r"\n", lambda match: "\n\n", chance),
    "a space more": replaced(r"\s|\Z", lambda match: match[0] + " ", chance),
    "an output less": without_one,
    "an output more": with_one_more,
}


@pytest.mark.parametrize("what", PLANTS)
def test_nbval_notices_what_is_planted_in_any_output(cells, what):
    planted, missed = 0, []
    for cell in compared(cells):
        for outputs in PLANTS[what](cell.cell.outputs):
            planted += 1
            if accepts(cell, outputs):
                missed.append(f"{cell.name}: {cell.cell.source[:60]}")
    assert not missed, missed
    assert planted or what == "a boolean"  # the drills print none


def test_nbval_takes_what_is_stored(cells):
    assert all(accepts(cell, cell.cell.outputs) for cell in cells)


# --- What is left out on purpose ------------------------------------------------------


def stream(text: str, name: str = "stdout") -> NotebookNode:
    return new_output("stream", name=name, text=text)


def shown(text: str = "a figure", kind: str = "display_data", **data) -> NotebookNode:
    return new_output(kind, {"text/plain": text, **data})


PICTURE, WIDGET = "image/png", "application/vnd.jupyter.widget-view+json"

# What nbval leaves out, and why that is right. Stored; a run that it takes for the same; runs that it does not.
LEFT_OUT = {
    "a picture: fonts and versions of matplotlib draw it differently": (
        [shown(**{PICTURE: "iVBORw0KGgo="}), stream("its message\n")],
        [shown(**{PICTURE: "iVBORw0KGg8="}), stream("its message\n")],
        [
            [shown(**{PICTURE: "iVBORw0KGgo="}), stream("its massage\n")],
            [shown("another", **{PICTURE: "iVBORw0KGgo="}), stream("its message\n")],
            [stream("its message\n")],
        ],
    ),
    "a widget's model: its number is random": (
        [shown("VBox(1)")],
        [shown("VBox(1)", **{WIDGET: {"model_id": "1a"}})],
        [[shown("VBox(2)", **{WIDGET: {"model_id": "1a"}})]],
    ),
    "pieces: a kernel sends a text in as many as its clock says": (
        [stream("1\n2\n")],
        [stream("1\n"), stream("2\n")],
        [[stream("1\n"), stream("3\n")], [stream("2\n"), stream("1\n")], [stream("1\n"), stream("2\n", "stderr")]],
    ),
    "the order of a text and a picture: two channels": (
        [stream("1\n"), shown("a"), shown("b")],
        [shown("a"), shown("b"), stream("1\n")],
        [[stream("1\n"), shown("b"), shown("a")]],
    ),
    "whether a value was displayed or a cell's last line": (
        [shown("42", "execute_result")],
        [shown("42")],
        [[shown("43")], [stream("42")]],
    ),
}


@pytest.mark.parametrize("what", LEFT_OUT)
def test_what_nbval_leaves_out_hides_nothing_beside_it(what, request, tmp_path):
    stored, taken, noticed = LEFT_OUT[what]
    cell = nbformat.v4.new_code_cell("1", execution_count=1, outputs=stored)
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), tmp_path / "one.ipynb")
    (cell,) = IPyNbFile.from_parent(request.session, path=tmp_path / "one.ipynb").collect()
    assert accepts(cell, taken)
    assert not any(accepts(cell, planted) for planted in noticed)


def test_nothing_is_stored_that_nbval_would_erase(cells):
    """It drops what a carriage return or a backspace overwrites."""
    assert not [cell.name for cell in cells if re.search("[\r\b]", checks.text_of(cell.cell))]


def test_nobody_sanitises(cells):
    """No rule rewrites a text before it is compared, and no cell asks to be spared, but by the one tag."""
    assert "sanitize" not in (HOUSE / "Makefile").read_text(encoding="utf-8")
    assert "sanitize" not in (HOUSE / "pyproject.toml").read_text(encoding="utf-8")
    tags = {tag for cell in cells for tag in cell.cell.metadata.get("tags", [])}
    assert {tag for tag in tags if not tag.startswith(build.PICTURE)} <= {checks.IGNORE, "solution"}
    for cell in cells:
        asked = [option for option, value in cell.options.items() if value]
        assert asked == ([] if checks.is_ignored(cell.cell) else ["check"]), cell.cell.source
        assert not cell.parent.sanitize_patterns


AGREED = [(lesson, one) for lesson, agreed in ignored.AGREED.items() for one in agreed]


@pytest.mark.parametrize(("lesson", "one"), AGREED)
def test_a_template_excepts_what_stands_in_its_braces_and_nothing_else(lesson, one):
    """A word, a letter or a line break elsewhere is as it is stored, or it is noticed."""
    notebook = nbformat.read(build.ROOT / f"{lesson}.ipynb", as_version=4)
    (text,) = [t for c in notebook.cells if checks.is_ignored(c) and one.matches(t := checks.text_of(c).strip())]
    fixed = re.split(r"\{\w+\}", one.shows)
    assert len(fixed) > 1, "nothing is excepted: the cell can be compared"
    for part in filter(str.strip, fixed):
        assert part in text
        spoilt = part[:-1] + ("\n" if part[-1] == " " else " ") if part[-1].isspace() else part[:-1] + "~"
        assert not one.matches(text.replace(part, spoilt)), part
    assert not one.matches(text + "\none more line") or one.shows.endswith("{torch}")


def test_a_cell_that_is_ignored_is_compared_but_for_what_is_excepted(tmp_path):
    """conftest.py does that in every run: here, one whose count of warnings is another."""
    notebook = nbformat.read(build.ROOT / "07_quiet_version.ipynb", as_version=4)
    cell = [cell for cell in notebook.cells if checks.is_ignored(cell)][1]
    assert ignored.problem("07_quiet_version", notebook, cell, cell.outputs) == ""
    cell.outputs[0].text = re.sub(r"(\d+) different", "39 different", cell.outputs[0].text)
    assert ignored.problem("07_quiet_version", notebook, cell, cell.outputs) == ""
    cell.outputs[0].text = cell.outputs[0].text.replace("warnings: 0", "warnings: 1")
    assert "which is not what notebooks/ignored.py says" in ignored.problem(
        "07_quiet_version", notebook, cell, cell.outputs
    )


def test_the_builder_stores_all_but_what_differs_from_run_to_run():
    data = {"text/plain": "VBox()", WIDGET: {"model_id": "1a"}}
    made = nbformat.v4.new_notebook(
        metadata={"language_info": {"name": "python", "version": "3.11.7"}},
        cells=[
            nbformat.v4.new_code_cell(
                "1", execution_count=1, metadata={"tags": ["solution"], "execution": {"iopub.status.busy": "now"}}
            )
        ],
    )
    made.cells[0].outputs = [stream("1.5\n"), new_output("display_data", data, metadata={"width": 3})]
    tidied = build.tidy(nbformat.from_dict(json.loads(json.dumps(made))))
    expected = nbformat.from_dict(json.loads(json.dumps(made)))
    expected.metadata = build.METADATA
    del expected.cells[0].metadata["execution"], expected.cells[0].outputs[1]["data"][WIDGET]
    assert tidied == expected


def test_the_checks_read_every_text_that_nbval_compares(cells):
    for cell in compared(cells):
        for outputs in PLANTS["a digit"](cell.cell.outputs):
            assert checks.text_of(NotebookNode(outputs=outputs)) != checks.text_of(cell.cell)


LONG = "a sentence that is longer than the page, and goes on and on, " * 3


@pytest.mark.parametrize(
    ("told", "alike", "apart"),
    [
        # A line of code, without the folders, which are of one machine, and the random name of a notebook's cell.
        (
            lambda file, line: place(compile("1", file, "exec"), line),
            [("here/trunk.py", 41), ("there/trunk.py", 41)],
            [("here/trunk.py", 41), ("here/trunk.py", 42), ("here/trunks.py", 41), ("ipykernel_7/1.py", 41)],
        ),
        (
            lambda file, line: place(compile("1", file, "exec"), line),
            [("ipykernel_7/1.py", 3), ("ipykernel_8/2.py", 3)],
            [("ipykernel_7/1.py", 3), ("ipykernel_7/1.py", 4)],
        ),
        # A finding, without the folder that the package was installed in.
        (
            audit_source.shown,
            [f"{audit_source.PROJECT}{os.sep}caps.py:26", f"{audit_source.PROJECT.name}{os.sep}caps.py:26"],
            ["a/caps.py:26", "b/caps.py:26", "a/caps.py:27"],
        ),
        # torch's messages, of which each version has more to say: the beginning.
        (field_guide.shortened, [LONG, LONG + "."], ["2 of 3", "2 of 4", "2 of 3" + LONG, "2 of 4" + LONG]),
        (
            lambda text: measure.error_of(ValueError(text)),
            ["2 of 3\nTip: look", "2 of 3\nTip: look there", "torch.utils.checkpoint: 2 of 3"],
            ["2 of 3", "2 of 4"],
        ),
        # A number, as far as machines agree.
        (stored_study.rounded, [0.123449, 0.123351], [0.1234, 0.1235, 0.0, -0.1234]),
    ],
)
def test_what_the_package_shortens_keeps_apart_what_differs_elsewhere(told, alike, apart):
    def all_of(given):
        return [told(*one) if isinstance(one, tuple) else told(one) for one in given]

    assert len(set(all_of(alike))) == 1
    assert len(set(all_of(apart))) == len(apart)


# --- What is stored beside the notebooks ----------------------------------------------


@pytest.mark.parametrize("study", [dropout_study, batchnorm_study])
def test_a_digit_of_a_stored_study_is_noticed(study, tmp_path):
    text, copy = study.STORED.read_text(encoding="utf-8"), tmp_path / study.STORED.name
    told = json.loads(text)
    store.store(copy, {k: v for k, v in told.items() if k not in ("seal", "curves")}, told["curves"])
    assert copy.read_text(encoding="utf-8") == text
    header = {k: v for k, v in told.items() if k not in ("seal", "curves")}
    assert store.stored(copy, header) == told["curves"]
    digits = [m for m in re.finditer(r"\d", text) if m.start() > text.index('"curves"')]
    for match in random.Random(0).sample(digits, 30):
        copy.write_text(text[: match.start()] + another_digit(match) + text[match.end() :], encoding="utf-8")
        with pytest.raises((ValueError, FileNotFoundError), match="was changed since|lacks 1 of its runs"):
            study.load(copy)
        assert store.stored(copy, header) == {}, "and a study that goes on does not build on it"


# --- From end to end ------------------------------------------------------------------

LESSON = "09_interview_cards"  # of all lessons, the quickest to run


def strict(folder: Path, lesson: str, src: Path = HOUSE / "src") -> subprocess.CompletedProcess:
    """nbval on a lesson, as the Makefile runs it."""
    makefile = (HOUSE / "Makefile").read_text(encoding="utf-8").replace("\\\n", "")
    (flags,) = re.findall(r"^NBVAL := (.+)$", makefile, re.MULTILINE)
    flags = shlex.split(flags.replace("-n $(WORKERS) --dist loadfile", ""))
    return subprocess.run(
        [sys.executable, *flags, "--color=no", "--rootdir", str(folder), str(folder / f"{lesson}.ipynb")],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(map(str, (src, build.ROOT, HOUSE / "tests")))},
        cwd=folder,
        capture_output=True,
        text=True,
    )


def failed(done: subprocess.CompletedProcess) -> set[str]:
    """The cells that failed, in either round."""
    return set(re.findall(r"^FAILED .*::(Cell \d+)", done.stdout, re.MULTILINE))


def test_one_digit_in_one_stored_output_fails_the_run_and_the_cell_is_named(tmp_path):
    notebook = nbformat.read(build.ROOT / f"{LESSON}.ipynb", as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    place = next(i for i, cell in enumerate(code) if re.search(r"\d", checks.text_of(cell)))
    code[place].outputs = next(replaced(r"\d", another_digit, random.Random(0))(code[place].outputs))
    nbformat.write(notebook, tmp_path / f"{LESSON}.ipynb")
    done = strict(tmp_path, LESSON)
    assert done.returncode == 1 and failed(done) == {f"Cell {place}"}, done.stdout[-3000:]


def test_one_constant_in_a_specimen_fails_a_lesson(tmp_path):
    """A trunk of seven blocks saves another number of tensors than one of eight."""
    shutil.copytree(HOUSE / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    specimen = tmp_path / "src" / "recompute_lab" / "specimens" / "trunk.py"
    text = specimen.read_text(encoding="utf-8")
    assert text.count("blocks: int = 8") == 1
    specimen.write_text(text.replace("blocks: int = 8", "blocks: int = 7"), encoding="utf-8")
    shutil.copy(build.ROOT / "00_start_here.ipynb", tmp_path)
    done = strict(tmp_path, "00_start_here", tmp_path / "src")
    assert done.returncode == 1 and "Cell 1" in failed(done), done.stdout[-3000:]
