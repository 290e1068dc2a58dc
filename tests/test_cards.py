"""Interview cards: a bad file is met with a sentence, and what is printed is what the data says."""

import copy
import re
import tomllib
from pathlib import Path
from urllib.parse import unquote

import build
import nbformat
import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from sample_cards import TEXT, sample_deck

from recompute_lab.lessons.cards import Deck, anchor, card_of, load, markdown, plain

ENTRY = tomllib.loads(TEXT)["card"][0]
TOPICS = {"passes": "Two passes", "draws": "Random draws"}
POINT = {"says": "It is so.", "shown_by": "tests/test_x.py::test_it"}


@pytest.fixture
def deck(tmp_path) -> Deck:
    return sample_deck(tmp_path)


def test_the_course_has_cards():
    deck = load()
    assert deck.cards and {card.topic for card in deck.cards} == set(deck.topics), "a topic without a card, or none"


def test_cards_are_chosen_by_topic_level_and_minutes(deck):
    def ids(**chosen):
        return [card.id for card in deck.choose(**chosen)]

    assert len(ids()) == 6
    assert ids(topic="draws") == ["lost-mask", "streams", "seed-once"]
    assert ids(level="screen") == ["what-runs-twice", "lost-mask"]
    assert ids(topic="draws", level="screen") == ["lost-mask"]
    assert ids(minutes=1) == ["what-runs-twice"] and "seed-once" not in ids(minutes=4)
    with pytest.raises(ValueError, match="no topic 'draw'; there are: passes, draws"):
        deck.choose(topic="draw")
    with pytest.raises(ValueError, match="no level 'junior'; there are: screen, onsite, staff"):
        deck.choose(level="junior")


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"id": "Lost_Mask"}, "card 'Lost_Mask', id: small letters"),
        ({"id": 7}, "the card, id: a text"),
        ({"topic": "passing"}, "card 'what-runs-twice', topic: 'passing' is none of passes, draws"),
        ({"topic": ["passes"]}, "topic: ['passes'] is none of"),
        ({"level": "junior"}, "card 'what-runs-twice', level: 'junior' is none of screen, onsite, staff"),
        ({"minutes": "2"}, "minutes: a whole number from 1 to 60, not '2'"),
        ({"minutes": 0}, "minutes: a whole number"),
        ({"minutes": True}, "minutes: a whole number"),
        ({"question": " "}, "question: a text that is not empty"),
        ({"weak": []}, "weak: a list of one text or more"),
        ({"weak": "Says nothing."}, "weak: a list"),
        ({"follow_ups": ["why?", ""]}, "follow_ups, number 2: a text"),
        ({"good": []}, "good: a list of one point or more"),
        ({"good": ["it is so"]}, "good, number 1: a point is {"),
        ({"good": [POINT, {"says": "x"}]}, "good, number 2: either shown_by, where it is a fact, or advice"),
        ({"senior": [POINT | {"advice": True}]}, "senior, number 1: either"),
        ({"senior": [{"says": "x", "advice": False}]}, "senior, number 1, advice: true"),
        ({"good": [POINT | {"shown_by": "lesson 4"}]}, 'good, number 1, shown_by: "tests/'),
        ({"good": [POINT | {"shown": "x"}]}, "good, number 1, shown: there is no such field; there are: advice, says"),
        ({"lesson": "lesson 4"}, 'lesson: "NN_name.ipynb#Heading'),
        ({"answer": "42"}, "card 'what-runs-twice', answer: there is no such field"),
        ({"lesson": None}, "lesson: a text"),
    ],
)
def test_a_card_that_breaks_a_rule(change, complaint):
    assert card_of(ENTRY, TOPICS).id == "what-runs-twice"
    with pytest.raises(ValueError, match=re.escape(complaint)):
        card_of({**ENTRY, **change}, TOPICS)


@pytest.mark.parametrize("field", ENTRY)
def test_a_field_that_is_missing_is_named(field):
    entry = copy.deepcopy(ENTRY)
    del entry[field]
    with pytest.raises(ValueError, match=f"{field}: is missing"):
        card_of(entry, TOPICS)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", r"bad.toml: \[topics\] must name"),
        ("[topics]\nx = 'X'", "bad.toml: there is no card"),
        ("[topics]\nx = 1", r"bad.toml: \[topics\], x: a text"),
        ("[topics\n", "bad.toml: is not TOML: .*line 1"),
        ("deck = 1\n" + TEXT, "bad.toml: the file, deck: there is no such field"),
        (TEXT.replace('"lost-mask"', '"early-stop"'), "bad.toml: card 4, id: 'early-stop' is another card's"),
        (TEXT.replace('id = "streams"\n', ""), "bad.toml: card 5, id: is missing"),
        (TEXT.replace("minutes = 5", "minutes = 5.5"), "bad.toml: card 'seed-once', minutes:"),
    ],
)
def test_a_bad_file_gets_a_sentence(tmp_path, text, complaint):
    path = tmp_path / "bad.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=complaint):
        load(path)


def test_a_file_that_cannot_be_read(tmp_path):
    with pytest.raises(ValueError, match="none.toml: cannot be read"):
        load(tmp_path / "none.toml")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match="binary.toml: is not text in UTF-8"):
        load(tmp_path / "binary.toml")


# --- The print


def read_back(text: str) -> str:
    """The text that a reader of the Markdown sees, code and all; markup would be missing from it."""
    tokens = MarkdownIt("gfm-like", {"linkify": False}).parse(text)
    assert [token.type for token in tokens] == ["bullet_list_open", "list_item_open", "paragraph_open"] + [
        "inline",
        "paragraph_close",
        "list_item_close",
        "bullet_list_close",
    ]
    seen = tokens[3].children
    assert {token.type for token in seen} <= {"text", "code_inline", "text_special"}
    return "".join(token.content for token in seen)


@pytest.mark.parametrize(
    "text",
    ["a*b*c", "_x_ and x_y_z", "<b>", "[a](b)", "# no heading", "1. no list", "- none", "&amp;", "~~a~~", "|a|", "\\*"],
)
def test_what_looks_like_markup_is_printed_as_it_is(text):
    assert read_back(f"- {plain(text)}") == text


@given(st.text(st.characters(codec="ascii", exclude_categories=["Cc"], exclude_characters="`"), min_size=1))
def test_any_text_is_printed_as_it_is(text):
    words = " ".join(text.split())
    if words:
        assert read_back(f"- {plain(text)}") == words


def test_code_stays_code():
    assert plain("set `use_reentrant=*` to *one*") == r"set `use_reentrant=*` to \*one\*"


def test_the_print_has_all_of_a_card(deck):
    text = markdown(deck.choose("draws"), deck.topics)
    assert text.startswith("# Interview cards\n\n## Random draws\n\n### What if the mask of `Dropout(p=0.5)` is")
    assert "Two passes" not in text and text.count("\n### ") == 3
    for card in deck.choose("draws"):
        for part in (*card.weak, *card.follow_ups, *(point.says for point in (*card.good, *card.senior))):
            assert plain(part) in text
    assert "- [ ] The penalty is gone. ([04_dropout.ipynb](04_dropout.ipynb))" in text
    assert "- [ ] Names a stream that is not replayed. (a judgement)" in text
    assert "([test_the_canvas](../tests/test_panels.py))" in markdown(deck.cards)
    assert "(04_dropout.ipynb#3-%C2%B7-Build-one)" in text


def test_the_stored_print_is_what_the_cards_give():
    deck, stored = load(), build.ROOT / build.CARDS
    said = "make notebooks writes it"
    assert stored.read_text(encoding="utf-8") == markdown(deck.cards, deck.topics), said


def headings(path: Path) -> set[str]:
    cells = nbformat.read(path, as_version=4).cells
    texts = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    return set(re.findall(r"^#+ (.*\S)\s*$", texts, re.MULTILINE))


def test_the_links_of_the_print_lead_somewhere():
    text = (build.ROOT / build.CARDS).read_text(encoding="utf-8")
    links = set(re.findall(r"(?<!\\)\]\(([^)#]+)(?:#([^)]+))?\)", text))
    assert any(fragment for _, fragment in links)
    for file, fragment in links:
        assert (build.ROOT / file).is_file(), file
        if fragment:
            assert unquote(fragment) in {unquote(anchor(heading)) for heading in headings(build.ROOT / file)}, fragment
