"""The interview cards are held to their evidence.

Every point of an answer is either a judgement (`advice = true`, and no number in it) or a fact, which says where it is
shown (`shown_by`), in one of two ways:

- `tests/test_x.py::test_name`: a test of this repository that asserts it. File and function must exist.
- `04_dropout.ipynb: some text`: what that notebook prints. The text, of at least 12 characters, must stand, character
  for character, in what one cell, and no other, has stored on stdout. The cell must be one whose output is compared in
  every test run (no tag `nbval-ignore-output`). Markdown, source and pictures are no evidence: a definition, too, needs
  a test.

A number with two digits or more that a point names must stand in that same output, or in the source of that test (its
decorators, and the constants of its module that it names, included). Numbers are compared by value: 1,000 is 1_000.
"""

import ast
import json
import re
import tomllib
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CARDS = ROOT / "src/recompute_lab/lessons/interview_cards.toml"
NOTEBOOKS = ROOT / "notebooks"
LEVELS = {"screen", "onsite", "staff"}
FIELDS = {"id", "topic", "level", "minutes", "question", "weak", "good", "senior", "follow_ups", "lesson"}
ASKS = (
    "Choose",
    "Compare",
    "Defend",
    "Derive",
    "Describe",
    "Explain",
    "Give",
    "Name",
    "Repair",
    "Review",
    "Say",
    "Tell",
    "Walk",
)
NOT_RUN = {"skip", "xfail", "importorskip"}  # and skipif, unless it asks the machine
LONGEST = 45  # words in a sentence that is to be said aloud

DECK = tomllib.loads(CARDS.read_text(encoding="utf-8"))
TOPICS, ALL = DECK["topics"], DECK["card"]
each_card = pytest.mark.parametrize("card", ALL, ids=[card.get("id", "no id") for card in ALL])


# --- Evidence


def sentences(text: str) -> list[str]:
    return [part for part in re.split(r"(?<=[.?!])['\"]?\s+", text.strip()) if part]


def numbers(text: str) -> list[float]:
    """Numerals of two digits or more that are no part of a word: "1,000", "0.3" and "64%", not "float32"."""
    found = re.findall(r"(?<![\w.])\d[\d,_]*(?:\.\d+)?(?:e-?\d+)?", text)
    return [float(re.sub("[,_]", "", one)) for one in found if sum(map(str.isdigit, one)) > 1]


def every_number(text: str) -> set[float]:
    """All numerals of the evidence, single digits too, and however they are joined to letters (`1_000`, `n=12`)."""
    return {float(re.sub("[,_]", "", one)) for one in re.findall(r"\d[\d,_]*(?:\.\d+)?(?:e-?\d+)?", text)}


@cache
def module(path: str) -> tuple[str, ast.Module]:
    file = ROOT / path
    assert file.is_file(), f"there is no {path}"
    source = file.read_text(encoding="utf-8")
    return source, ast.parse(source)


def source_of(link: str) -> str:
    """The source of the test that a link names, and of the module's constants that it names."""
    path, _, name = link.partition("::")
    assert re.fullmatch(r"tests/test_\w+\.py", path), f"{link}: a test stands in tests/test_....py"
    name, _, case = name.removesuffix("]").partition("[")
    source, tree = module(path)
    steps, scope = name.split("::"), tree.body
    for step in steps:
        node = next((n for n in scope if isinstance(n, (ast.FunctionDef, ast.ClassDef)) and n.name == step), None)
        assert node is not None, f"{link}: {path} has no {step}"
        scope = node.body
    assert isinstance(node, ast.FunctionDef) and node.name.startswith("test_"), f"{link}: {name} is no test"
    assert any(_asserts(n) or _expects_an_error(n) for n in ast.walk(node)), f"{link} asserts nothing"
    assert not any(isinstance(n, ast.Return) for n in node.body), f"{link} ends before its assertions"
    marks = [n for n in tree.body if isinstance(n, ast.Assign) and ast.unparse(n.targets[0]) == "pytestmark"]
    idle = {how for part in (node, *marks) for n in ast.walk(part) if (how := _not_run(n))}
    assert not idle, f"{link}: a test that may not run, or may fail, shows nothing: {', '.join(sorted(idle))}"
    decorators = "\n".join(ast.get_source_segment(source, decorator) for decorator in node.decorator_list)
    for part in filter(None, case.split("-") if "ids=[" in decorators else ()):  # others are made when it runs
        assert part in decorators, f"{link}: the test has no case {part}"
    lines = source.splitlines()
    first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
    named = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
    constants = [
        ast.get_source_segment(source, n)
        for n in tree.body
        if isinstance(n, ast.Assign)
        and named & {t.id for target in n.targets for t in ast.walk(target) if isinstance(t, ast.Name)}
    ]
    return "\n".join([*lines[first - 1 : node.end_lineno], *constants])


def _asserts(node: ast.AST) -> bool:
    return isinstance(node, ast.Assert) and not isinstance(node.test, ast.Constant)


def _not_run(node: ast.AST) -> str:
    """How a node keeps its test from running, or from failing; "" where it does not."""
    if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("mark.skipif"):
        return "skipif" if all(isinstance(condition, ast.Constant) for condition in node.args) else ""
    return node.attr if isinstance(node, ast.Attribute) and node.attr in NOT_RUN else ""


def _expects_an_error(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr in ("raises", "assert_close")


@cache
def cells(notebook: str) -> tuple[dict, ...]:
    file = NOTEBOOKS / notebook
    assert file.is_file(), f"there is no notebooks/{notebook}"
    return tuple(json.loads(file.read_text(encoding="utf-8"))["cells"])


@cache
def compared_outputs(notebook: str) -> tuple[str, ...]:
    return tuple(
        "".join(output["text"])
        for cell in cells(notebook)
        if cell["cell_type"] == "code" and "nbval-ignore-output" not in cell["metadata"].get("tags", [])
        for output in cell["outputs"]
        if output["output_type"] == "stream" and output["name"] == "stdout"
    )


def printed(link: str) -> str:
    """The stored output in which the text of a link stands."""
    notebook, _, text = link.partition(": ")
    cells(notebook)
    assert len(text) >= 12, f"{link}: too short a text to tell one output from another"
    shown = [output for output in compared_outputs(notebook) if text in output]
    assert shown, f"{link}: no compared output of {notebook} has this text"
    assert len(shown) == 1, f"{link}: {len(shown)} outputs of {notebook} have this text; take one that only one has"
    return shown[0]


def evidence(link: str) -> str:
    return source_of(link) if link.startswith("tests/") else printed(link)


def headings(notebook: str) -> set[str]:
    text = "\n".join("".join(cell["source"]) for cell in cells(notebook) if cell["cell_type"] == "markdown")
    return set(re.findall(r"^#+ +(.+?) *$", text, re.MULTILINE))


# --- Cards


@each_card
def test_a_card_has_all_of_its_parts(card):
    assert set(card) == FIELDS
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", card["id"])
    assert card["topic"] in TOPICS and card["level"] in LEVELS
    assert type(card["minutes"]) is int and 1 <= card["minutes"] <= 8
    assert 1 <= len(card["weak"]) <= 4 and 2 <= len(card["follow_ups"]) <= 4
    assert 2 <= len(card["good"]) <= 6 and 2 <= len(card["senior"]) <= 6
    for text in [card["question"], *card["weak"], *card["follow_ups"]]:
        assert isinstance(text, str) and text == text.strip() and text


@each_card
def test_a_question_asks(card):
    last = sentences(card["question"])[-1]
    assert last.endswith("?") or (last.endswith(".") and last.split()[0] in ASKS), last
    for follow_up in card["follow_ups"]:
        last = sentences(follow_up)[-1]
        assert last.endswith("?") or (last.endswith(".") and last.split()[0] in ASKS), last


@each_card
def test_every_point_is_shown_or_is_advice(card):
    for point in card["good"] + card["senior"]:
        assert set(point) in ({"says", "shown_by"}, {"says", "advice"}), point
        if "advice" in point:
            assert point["advice"] is True and not re.search(r"\d", point["says"]), point["says"]
        else:
            shown = evidence(point["shown_by"])
            missing = [n for n in numbers(point["says"]) if n not in every_number(shown)]
            assert not missing, f"{point['shown_by']} does not show {missing}: {point['says']}"
    assert any("shown_by" in point for point in card["good"]), "an answer without a single fact"


@each_card
def test_sentences_can_be_said_in_one_breath(card):
    texts = [card["question"], *card["weak"], *card["follow_ups"]]
    texts += [point["says"] for point in card["good"] + card["senior"]]
    for text in texts:
        assert text[0].isupper() or text[0] in "`\"'", text
        assert text[-1] in ".?!\"'", text
        assert all(len(sentence.split()) <= LONGEST for sentence in sentences(text)), text


@each_card
def test_a_card_leads_to_a_section_of_a_lesson(card):
    notebook, _, heading = card["lesson"].partition("#")
    assert heading in headings(notebook), f"{notebook} has no heading {heading!r}"


def test_the_deck():
    assert len(ALL) >= 55 and 8 <= len(TOPICS) <= 10
    topics, levels = Counter(card["topic"] for card in ALL), Counter(card["level"] for card in ALL)
    assert set(topics) == set(TOPICS) and min(topics.values()) >= 4 and max(topics.values()) <= 10
    assert set(levels) == LEVELS and min(levels.values()) >= 10
    for unique in ("id", "question"):
        often = [text for text, n in Counter(" ".join(card[unique].lower().split()) for card in ALL).items() if n > 1]
        assert not often, f"{unique} more than once: {often}"
    said = Counter(point["says"] for card in ALL for point in card["good"] + card["senior"])
    assert max(said.values()) == 1, f"said twice: {said.most_common(1)}"


# --- The rules themselves


def test_numbers_are_told_from_words():
    assert numbers("At p = 0.3, 1,000 steps of float32 take 64%; 3 of 8; step2 and 2.13.") == [0.3, 1000, 64, 2.13]
    assert every_number("range(1_000), n=12, 64%") >= {1000, 12, 64}


@pytest.mark.parametrize(
    ("link", "why"),
    [
        ("tests/test_no_such.py::test_x", "there is no tests/test_no_such.py"),
        ("tests/test_interview_cards.py::test_no_such", "has no test_no_such"),
        ("tests/test_interview_cards.py::evidence", "is no test"),
        ("src/recompute_lab/cli.py::main", "there is no notebooks/"),
        ("09_no_such.ipynb: a text that is long enough", "there is no notebooks/"),
        ("00_start_here.ipynb: ready: True, and more", "no compared output"),
        ("00_start_here.ipynb: ready: True", "too short a text"),
        ("08_field_guide.ipynb: gradients off by 0.5", "2 outputs of 08_field_guide.ipynb have this text"),
        ("00_start_here.ipynb: Linux x86_64, CPU kernels", "no compared output"),  # printed, and not compared
        ("00_start_here.ipynb: from recompute_lab.lessons import start_here", "no compared output"),  # source
        ("00_start_here.ipynb: Activation checkpointing saves memory", "no compared output"),  # markdown
    ],
)
def test_what_shows_nothing_is_no_evidence(link, why):
    with pytest.raises(AssertionError, match=why):
        evidence(link)


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("@pytest.mark.skip(reason='')\ndef test_x():\n    assert f() == 1", "may not run"),
        ("@pytest.mark.skipif(True, reason='')\ndef test_x():\n    assert f() == 1", "may not run"),
        ("@pytest.mark.xfail\ndef test_x():\n    assert f() == 1", "may not run"),
        ("pytestmark = pytest.mark.skip\ndef test_x():\n    assert f() == 1", "may not run"),
        ("def test_x():\n    pytest.skip('later')\n    assert f() == 1", "may not run"),
        ("def test_x():\n    return\n    assert f() == 1", "ends before its assertions"),
        ("def test_x():\n    assert True", "asserts nothing"),
        ("def test_x():\n    f()", "asserts nothing"),
        ("@pytest.mark.parametrize('n', [1], ids=['one'])\ndef test_x(n):\n    assert n == 1", "has no case two"),
    ],
)
def test_a_test_that_shows_nothing_is_no_evidence(monkeypatch, source, why):
    monkeypatch.setitem(globals(), "module", lambda path: (source, ast.parse(source)))
    with pytest.raises(AssertionError, match=why):
        source_of("tests/test_some.py::test_x[two]" if "ids" in source else "tests/test_some.py::test_x")


def test_evidence_is_the_whole_output_or_the_test_with_its_constants():
    assert "162 tensors saved in forward, 161" in evidence("01_the_crash.ipynb: earlier steps with a capped vector: 0")
    assert "LONGEST = 45" in evidence("tests/test_interview_cards.py::test_sentences_can_be_said_in_one_breath")
