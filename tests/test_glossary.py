"""The glossary: every word that a lesson introduces, in order, with links that lead to where the word stands."""

import re

import course
import pytest

GLOSSARY = course.NOTEBOOKS / "glossary.md"
TEXT = GLOSSARY.read_text(encoding="utf-8")
TERMS = [heading.text for heading in course.headings(TEXT) if heading.level == 2]
SEE = re.compile(r"^See \[([^\]]+)\]\(#([^)]+)\)\.$")

# Words of a lesson's paragraph "The words" that have no entry of their own, and where they are.
ELSEWHERE = {
    "off by 0.5": "off by",  # an example with a number
    "the switch": "switch",
    "flips": "flip",
}


def entry(term: str) -> str:
    return course.section(GLOSSARY, course.anchor(term)).partition("\n")[2].strip()


def stem(word: str) -> str:
    """Without what makes a plural or a form of a verb, and without the signs that code writes for spaces."""
    word = re.sub(r"[_\-\s]+", " ", word.lower()).strip()
    return re.sub(r"(?<=\w{3})(es|s|ed|ing|e)$", "", word)


def mentions(text: str, term: str) -> bool:
    flat = re.sub(r"[_\-\s]+", " ", text.lower())
    return re.search(rf"(?<!\w){re.escape(stem(term))}", flat) is not None


def links(term: str) -> list[tuple[str, str]]:
    return [(match[2], match[3]) for match in course.LINK.finditer(entry(term)) if not match[3].startswith("#")]


def test_terms_stand_in_the_order_of_the_alphabet_and_once():
    keys = [re.sub(r"[^a-z]", "", term.lower()) for term in TERMS]
    assert keys == sorted(keys)
    assert len(set(map(stem, TERMS))) == len(TERMS)


@pytest.mark.parametrize("term", TERMS)
def test_an_entry_is_one_to_four_sentences_and_a_link_or_leads_to_one(term):
    text = entry(term)
    if see := SEE.match(text):
        assert see[1] in TERMS and see[2] == course.anchor(see[1])
        assert not SEE.match(entry(see[1])), "leads to an entry that leads on"
        return
    said, _, where = text.rpartition("\n\n")
    assert 1 <= len(re.findall(r"[.)](?:\s|$)", said)) <= 4, said
    assert re.fullmatch(r"Lesson (\d\d): \[[^\]]+\]\(\1_\w+\.ipynb#[^)]+\)", where), where


@pytest.mark.parametrize("term", TERMS)
def test_the_section_that_an_entry_links_to_has_the_term(term):
    for name, target in links(term):
        file, _, fragment = target.partition("#")
        path = course.NOTEBOOKS / file
        assert path.is_file(), f"{file} does not exist"
        text = course.section(path, fragment)
        assert text is not None, f"{file} has no heading with the id {fragment}"
        assert mentions(text, term), f"the section '{fragment}' of {file} does not say '{term}'"
        first = course.headings(text)[0].text
        assert name in (first, "The words")
        if name == "The words":  # what the top of a lesson links to is its paragraph of words
            assert mentions(course.words_paragraph(course.NOTEBOOKS / "source" / f"{path.stem}.py"), term)


@pytest.mark.parametrize("source", course.LESSONS, ids=lambda source: source.stem)
def test_every_word_that_a_lesson_defines_is_in_the_glossary(source):
    have = set(map(stem, TERMS))
    missing = [w for w in course.defined_words(source) if stem(ELSEWHERE.get(w, w)) not in have]
    assert not missing, f"not in notebooks/glossary.md: {', '.join(missing)}"


def test_no_exception_is_left_over():
    used = {word for source in course.LESSONS for word in course.defined_words(source)}
    assert set(ELSEWHERE) <= used
