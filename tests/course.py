"""The course as texts: lessons' cells as their sources give them, Markdown files, headings, links, words.

Read from the sources, so that a lesson counts as soon as it is written; what holds of stored outputs is asked of
the notebooks.
"""

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import build
from nbformat import NotebookNode

HOUSE = Path(__file__).resolve().parent.parent
NOTEBOOKS = build.ROOT
LESSONS = build.sources()
TEXTS = [HOUSE / "README.md", *sorted(NOTEBOOKS.glob("*.md"))]


FENCE = re.compile(r"^(```+|~~~+).*?^\1[ \t]*$", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^(#{1,6})[ \t]+(.+?)[ \t]*#*$", re.MULTILINE)
LINK = re.compile(r"(!?)\[([^\]]*)\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)")
BARE = re.compile(r"https?://[^\s)>\]\"'`]+")
CODE = re.compile(r"(`+)(.+?)\1", re.DOTALL)


def plain(text: str) -> str:
    """Markdown without its blocks of code."""
    return FENCE.sub("", text)


def prose(text: str) -> str:
    """Markdown without any code."""
    return CODE.sub("", plain(text))


def heading_text(markdown: str) -> str:
    """What a heading shows, as the browser has it: marks of emphasis, code and links are gone."""
    shown = LINK.sub(r"\2", markdown)
    shown = CODE.sub(r"\2", shown)
    return re.sub(r"(?<!\w)(\*\*|\*|__|_)(?=\S)(.+?)(?<=\S)\1(?!\w)", r"\2", shown)


def anchor(heading: str) -> str:
    """A heading's id in JupyterLab 4: `createHeaderId` in its `renderers.ts` puts a hyphen for each space."""
    return heading.replace(" ", "-")


@dataclass(frozen=True)
class Heading:
    level: int
    text: str
    line: int  # from 0, in its text


def headings(markdown: str) -> list[Heading]:
    hidden = FENCE.sub(lambda block: re.sub(r"[^\n]", " ", block[0]), markdown)  # a comment in code is none
    return [
        Heading(len(match[1]), heading_text(match[2]), hidden.count("\n", 0, match.start()))
        for match in HEADING.finditer(hidden)
    ]


@cache
def cells(source: Path, solved: bool = False) -> tuple[NotebookNode, ...]:
    """A lesson's cells, not executed."""
    return tuple(build.render(source.stem, source.read_text(encoding="utf-8"), solved).cells)


def markdown(source: Path) -> list[str]:
    return [cell.source for cell in cells(source) if cell.cell_type == "markdown"]


def whole(source: Path) -> str:
    """All Markdown of a lesson, cell after cell."""
    return "\n\n".join(markdown(source))


def number(source: Path) -> str:
    return source.stem[:2]


@cache
def text_of(path: Path) -> str:
    """The Markdown of a notebook of the course (from its source), or of a Markdown file."""
    if path.suffix == ".ipynb":
        return whole(NOTEBOOKS / "source" / f"{path.stem}.py")
    return path.read_text(encoding="utf-8")


def section(path: Path, fragment: str) -> str | None:
    """What stands under the heading with this id, up to the next one of its level or above; None without one.

    A lesson's title has what stands before the next heading of any level.
    """
    text = text_of(path)
    found = headings(text)
    lines = text.split("\n")
    for place, heading in enumerate(found):
        if anchor(heading.text) == fragment:
            deepest = 6 if heading.level == 1 else heading.level
            end = next((h.line for h in found[place + 1 :] if h.level <= deepest), len(lines))
            return "\n".join(lines[heading.line : end])
    return None


# "**1.**", "**1. In the code.**", "**Exercise 1.**", "**Stage 1: naive.**"; in the drills a heading, "### 1 · Title".
EXERCISE = re.compile(r"(?:\*\*(?:Exercise |Stage )?|^### (?=\d+ · ))(\d+)(?:\.\*\*|: |\. | · )", re.MULTILINE)
TERM = re.compile(r"(?<![\w*])(\*\*|\*)(?=\S)([^*]+?)(?<=\S)\1(?![\w*])")


def words_paragraph(source: Path) -> str | None:
    """What begins with "The words": the rest of a lesson's first cell, or elsewhere one paragraph. Or None."""
    for place, cell in enumerate(markdown(source)):
        if match := re.search(r"^\*\*The words\b", cell, re.MULTILINE):
            rest = cell[match.start() :]
            return rest if place == 0 else rest.split("\n\n")[0]
    return None


def defined_words(source: Path) -> list[str]:
    """The terms in *italics* or **bold** of that paragraph, in lower case and without the full stops of headings."""
    paragraph = words_paragraph(source) or ""
    found = [" ".join(match[2].split()).rstrip(".").lower() for match in TERM.finditer(paragraph)]
    return [term for term in found if term != "the words"]
