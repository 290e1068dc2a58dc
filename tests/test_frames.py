"""Every lesson has the same frame: a reader who knows one finds the way in all."""

import re

import course
import nbformat
import pytest

lessons = pytest.mark.parametrize("source", course.LESSONS, ids=lambda source: source.stem)
TEACHING = [source for source in course.LESSONS if course.number(source) <= "08"]

# What a reader will be able to do begins with a verb of doing. A new one is welcome: it has to be a verb.
VERBS = set(
    "answer build check choose derive explain find grade judge make name predict prove read repair replace run say "
    "search tell triage turn use write work diagnose spot come give count compare rate recall plan tackle defend "
    "decide solve state put hold rehearse show practise debug argue fix".split()
)
DRILL = re.compile(r"### (\d+) · .*\*\*\(a\)\*\*.*\*\*\(b\)\*\*", re.DOTALL)
SUMMARY = re.compile(r"<summary>(.*?)</summary>", re.DOTALL)
EARLIER = re.compile(r"From lesson (\d\d)\b")


def header(source) -> str:
    """The first cell: what stands before anything is run."""
    return course.markdown(source)[0]


def recap(source) -> str:
    return course.section(course.NOTEBOOKS / f"{source.stem}.ipynb", "Recap") or ""


@lessons
def test_the_title_has_the_number_of_the_file(source):
    first = course.headings(header(source))[0]
    assert first.level == 1 and first.line == 0
    assert re.fullmatch(rf"{course.number(source)} · [A-Z].+[^.]", first.text), first.text


@lessons
def test_it_says_what_a_reader_will_be_able_to_do(source):
    told = re.search(r"^\*\*You will be able to\*\*\n((?:- .+\n(?:  .+\n)*)+)", header(source), re.MULTILINE)
    assert told, "no list under **You will be able to**"
    aims = re.findall(r"^- (\w+)", told[1], re.MULTILINE)
    assert len(aims) >= 2
    assert not [aim for aim in aims if aim not in VERBS], "an aim begins with a verb: see VERBS"


@lessons
def test_it_says_how_long_it_takes_and_what_it_needs(source):
    assert re.search(r"^\*\*Time\*\* .*(minutes|hours?)", header(source), re.MULTILINE)
    assert re.search(r"\*\*You need\*\* \w", header(source))


@lessons
def test_its_words_are_said_before_the_first_prediction(source):
    text = course.whole(source)
    words, predict = text.find("\n**The words"), text.find("**Predict")
    assert words >= 0, "no paragraph begins with **The words"
    assert len(course.defined_words(source)) >= 2
    assert predict < 0 or words < predict


@pytest.mark.parametrize("source", TEACHING, ids=lambda source: source.stem)
def test_an_early_cell_shows_the_versions_of_python_and_torch(source):
    notebook = nbformat.read(course.NOTEBOOKS / f"{source.stem}.ipynb", as_version=4)
    early = [cell for cell in notebook.cells[:4] if cell.cell_type == "code"]
    told = [
        "".join(output.get("text", "") for output in cell.outputs)
        for cell in early
        if "nbval-ignore-output" in cell.metadata.get("tags", [])  # versions are the machine's, not the lesson's
    ]
    assert any(re.search(r"(?i)python \d", one) and re.search(r"torch \d", one) for one in told)


@pytest.mark.parametrize("source", TEACHING, ids=lambda source: source.stem)
def test_a_teaching_lesson_asks_to_predict_before_it_runs(source):
    before, asked = False, 0
    for cell in course.cells(source):
        if cell.cell_type == "code":
            asked += before
        before = cell.cell_type == "markdown" and bool(re.search(r"\*\*(Predict|Judge)\b", cell.source))
    assert asked >= 1


@lessons
def test_exercises_are_numbered_without_holes_and_each_has_its_check(source):
    """A Markdown cell may hold several: then as many cells to solve follow. A drill is one, with two cells."""
    numbers, due, open_since = [], 0, None
    for cell in course.cells(source):
        if cell.cell_type == "markdown":
            drill = DRILL.match(cell.source)
            found = [int(drill[1])] if drill else [int(n) for n in course.EXERCISE.findall(cell.source)]
            if found:
                assert due <= 0, f"exercise {open_since} has no cell to solve it in"
                numbers += found
                due, open_since = 2 if drill else len(found), found[0]
        elif "solution" in cell.metadata.get("tags", []):
            assert re.search(r"\bcheck\.\w+\(|\bcheck\(", cell.source), cell.source
            due -= 1
    assert due <= 0, f"exercise {open_since} has no cell to solve it in"
    assert numbers == list(range(1, len(numbers) + 1))
    assert numbers


@lessons
def test_the_recap_has_three_questions_and_one_is_from_an_earlier_lesson(source):
    text = recap(source)
    questions = SUMMARY.findall(text)
    assert len(questions) >= 3
    assert text.count("<details>") == text.count("</details>") == len(questions)
    for answer in re.findall(r"</summary>(.*?)</details>", text, re.DOTALL):
        assert len(answer.split()) >= 5, "an answer of fewer than five words"
    from_earlier = [found[1] for q in questions if (found := EARLIER.match(q))]
    assert all(lesson < course.number(source) for lesson in from_earlier)
    assert from_earlier or course.number(source) == "00"


def test_every_teaching_lesson_is_asked_again_later():
    asked = {found for source in course.LESSONS for found in EARLIER.findall(recap(source))}
    taught = {course.number(source) for source in TEACHING[:-1]}  # the last one may be the course's last
    assert not taught - asked, f"no later recap asks about {', '.join(sorted(taught - asked))}"


@lessons
def test_it_ends_with_its_references(source):
    level_two = [heading.text for heading in course.headings(course.whole(source)) if heading.level == 2]
    assert level_two[-1] == "References"
    listed = course.section(course.NOTEBOOKS / f"{source.stem}.ipynb", "References")
    assert len(re.findall(r"^- \S", listed, re.MULTILINE)) >= 1
