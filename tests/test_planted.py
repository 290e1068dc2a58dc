"""A difference that is planted in one place is noticed, whatever the place.

nbval's own `IPyNbCell.runtest` is run on every cell of every stored notebook. In place of a kernel it listens to a
recording, which says what the notebook has stored, or says it with one thing changed.
"""

import random
import re
from collections.abc import Callable, Iterator
from queue import Empty

import build
import checks
import nbformat
import pytest
from nbformat import NotebookNode
from nbformat.v4 import new_output
from nbval.plugin import IPyNbCell, IPyNbFile, NbCellError

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
        for place in range(len(list(texts(outputs)))):
            planted = [nbformat.from_dict(output) for output in outputs]
            holder, key = list(texts(planted))[place]
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
