"""Links and cross-references lead somewhere: files, headings, lessons, sections, exercises."""

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

import course
import pytest

# Where a link may lead outside of the repository: no test asks the network, so that a lab without one passes.
HOSTS = {
    "arxiv.org",
    "discuss.pytorch.org",
    "docs.nvidia.com",
    "docs.python.org",
    "docs.pytorch.org",
    "github.com",
    "huggingface.co",
    "jupyterlab.readthedocs.io",
    "mybinder.org",
    "pytorch.org",
    "www.w3.org",
}

# All texts with links, by their name: README, notebooks/*.md, and each lesson as both of its notebooks have it.
DOCUMENTS = {path.name: (path, course.text_of(path)) for path in course.TEXTS}
for source in course.LESSONS:
    for solved, folder in ((False, course.NOTEBOOKS), (True, course.NOTEBOOKS / "solutions")):
        text = "\n\n".join(cell.source for cell in course.cells(source, solved) if cell.cell_type == "markdown")
        DOCUMENTS[f"{folder.name}/{source.stem}"] = (folder / f"{source.stem}.ipynb", text)

documents = pytest.mark.parametrize(("path", "text"), DOCUMENTS.values(), ids=DOCUMENTS)


def targets(text: str) -> list[str]:
    return [match[3] for match in course.LINK.finditer(course.prose(text))]


def problem(path: Path, target: str) -> str | None:
    """What is wrong with a relative link in the file `path`, or None."""
    file, _, fragment = unquote(target).partition("#")
    aim = (path.parent / file).resolve() if file else path
    if not aim.is_relative_to(course.HOUSE):
        return f"{target} leads out of the repository"
    if not aim.is_file():
        return f"{target}: there is no such file"
    if not fragment:
        return None
    if aim.suffix not in (".ipynb", ".md"):
        return f"{target}: a fragment of a file without headings"
    ids = {course.anchor(heading.text) for heading in course.headings(course.text_of(aim))}
    return None if fragment in ids else f"{target}: {aim.name} has no heading with this id"


@documents
def test_relative_links_lead_to_a_file_and_a_heading(path, text):
    relative = [target for target in targets(text) if not urlsplit(target).scheme]
    assert not [said for target in relative if (said := problem(path, target))]


@documents
def test_links_to_the_world_are_well_formed_and_lead_to_hosts_that_we_know(path, text):
    outside = {target for target in targets(text) if urlsplit(target).scheme} | set(course.BARE.findall(text))
    for target in outside:
        parts = urlsplit(target.rstrip(".,;:"))
        assert parts.scheme == "https", target
        assert parts.hostname in HOSTS, f"{target}: is {parts.hostname} a host to send readers to? Then add it to HOSTS"
        assert " " not in target and parts.path


@documents
def test_no_link_is_left_half_written(path, text):
    prose = course.prose(text)
    assert not re.findall(r"\[[^\]]*\]\(\s*\)|\]\s+\((?:[\w/.-]+\.(?:ipynb|md)|https?:)|\bTODO\b|\[\[", prose)


def test_a_wrong_link_is_noticed():
    readme = course.HOUSE / "README.md"
    assert problem(readme, "notebooks/00_start_here.ipynb#The-map") is None
    assert problem(readme, "notebooks/glossary.md#segment") is None
    assert "no such file" in problem(readme, "notebooks/00_start.ipynb")
    assert "no heading" in problem(readme, "notebooks/00_start_here.ipynb#The map")
    assert "no heading" in problem(readme, "notebooks/00_start_here.ipynb#found:")  # a comment in code
    assert "out of the repository" in problem(readme, "../README.md")


# --- "lesson 05", "section 4", "exercise 3"

NUMBERS = r"(\d+)((?:(?:, | and | or | to |, and |–|-)\d+)*)"
REFERENCE = re.compile(
    rf"(?P<lesson>\b[Ll]essons?\s+(?P<l>\d\d)\b)?'?s?,?\s*(?P<what>\b[Ss]ections?|\b[Ee]xercises?)\s+{NUMBERS}"
)
LESSON = re.compile(r"\b[Ll]essons?\s+(\d+)((?:(?:,\s| and | or | to |, and |–)\d\d)*)")
CITED = re.compile(r"\d{4}[:,] section \d|, section \"|section \*")  # of a book or a paper, not of a lesson
NUMBERED = {
    course.number(source): {
        "section": {int(n) for n in re.findall(r"^## (\d+) · ", course.whole(source), re.MULTILINE)},
        "exercise": {int(n) for n in course.EXERCISE.findall(course.whole(source))},
    }
    for source in course.LESSONS
}


def spelled_out(first: str, rest: str) -> list[str]:
    """The numbers of "4", "04 and 05", "4 to 6"."""
    found = [first, *re.findall(r"\d+", rest)]
    if " to " in rest or "–" in rest:
        return [f"{n:0{len(first)}d}" for n in range(int(found[0]), int(found[-1]) + 1)]
    return found


def wrong_references(text: str, own: str | None) -> list[str]:
    """Lessons, sections and exercises that are named in a text and do not exist; `own` is the lesson that it is."""
    flat = " ".join(CITED.sub("", course.plain(text)).split())
    wrong = []
    for match in LESSON.finditer(flat):
        wrong += [f"lesson {n}" for n in spelled_out(match[1], match[2]) if n not in NUMBERED]
    for match in REFERENCE.finditer(flat):
        lesson, kind = match["l"] or own, match["what"].lower().rstrip("s")
        if lesson is None:
            wrong.append(f"'{match[0].strip()}': of which lesson?")
        elif lesson in NUMBERED:
            numbers = spelled_out(match[4], match[5])
            wrong += [f"lesson {lesson}, {kind} {n}" for n in numbers if int(n) not in NUMBERED[lesson][kind]]
    return wrong


def about(text: str) -> Iterator[tuple[str, str | None]]:
    """A text in parts, each with the lesson that it is about: a table's row, the one that it links to first."""
    chapter, prose = None, []
    for line in course.plain(text).splitlines():
        if line.startswith("#"):
            yield "\n".join(prose), chapter
            prose, chapter = [], (re.match(r"#+ (\d\d) · ", line) or [None, None])[1]
        elif line.startswith("|"):
            linked = re.search(r"\]\((?:notebooks/)?(\d\d)_\w+\.ipynb", line)
            yield line, linked[1] if linked else chapter
        else:
            prose.append(line)
    yield "\n".join(prose), chapter


@documents
def test_lessons_sections_and_exercises_that_are_named_exist(path, text):
    if path.suffix == ".ipynb":
        assert not wrong_references(text, path.stem[:2])
    else:
        assert not [wrong for part, own in about(text) for wrong in wrong_references(part, own)]


@pytest.mark.parametrize("source", course.LESSONS, ids=lambda source: source.stem)
def test_what_code_cells_and_hints_name_exists(source):
    code = "\n".join(cell.source for cell in course.cells(source, True) if cell.cell_type == "code")
    assert not wrong_references(code, course.number(source))


def test_lessons_that_the_package_names_exist():
    wrong = {}
    for path in sorted((course.HOUSE / "src").rglob("*.py")):
        flat = " ".join(path.read_text(encoding="utf-8").split())
        found = [n for match in LESSON.finditer(flat) for n in spelled_out(match[1], match[2]) if n not in NUMBERED]
        if found:
            wrong[path.name] = found
    assert not wrong


def test_a_wrong_reference_is_noticed():
    assert wrong_references("lesson 12", "04") == ["lesson 12"]
    assert wrong_references("Lessons 01 and 44", "04") == ["lesson 44"]
    assert wrong_references("section 9", "04") == ["lesson 04, section 9"]
    assert wrong_references("sections 1 and\n9", "04") == ["lesson 04, section 9"]
    assert wrong_references("exercises 4 to 9", "05") == ["lesson 05, exercise 8", "lesson 05, exercise 9"]
    assert wrong_references("lesson 02, section 7", "04") == ["lesson 02, section 7"]
    assert wrong_references("see section 2", None) == ["'section 2': of which lesson?"]
    assert wrong_references("lesson 02, section 6, and section 8", "04") == []


# --- The lessons' tables


def rows(table: str) -> dict[str, str]:
    return dict(re.findall(r"^\| (\d\d) \| (.*) \|$", table, re.MULTILINE))


def test_the_readme_lists_every_lesson_with_its_title_and_its_link():
    found = rows(course.text_of(course.HOUSE / "README.md"))
    for source in course.LESSONS:
        title = course.headings(course.whole(source))[0].text.partition(" · ")[2]
        row = found[course.number(source)]
        assert f"(notebooks/{source.stem}.ipynb)" in row
        name = course.LINK.search(row)[2]
        assert title.lower().startswith(name.lower()), f"{name} is not the beginning of '{title}'"


def test_the_map_of_lesson_00_lists_every_lesson():
    found = rows(course.section(course.NOTEBOOKS / "00_start_here.ipynb", "The-map"))
    for source in course.LESSONS[1:]:
        assert f"({source.stem}.ipynb)" in found[course.number(source)]


def test_the_glossary_is_linked_from_lesson_00_in_both_notebooks():
    learner, solved = (DOCUMENTS[f"{folder}/00_start_here"][1] for folder in ("notebooks", "solutions"))
    assert "](glossary.md)" in learner and "](../glossary.md)" in solved
