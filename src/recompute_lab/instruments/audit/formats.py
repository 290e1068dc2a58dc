"""The result as text, as JSON, or as annotations for GitHub's checks."""

from __future__ import annotations

import json
from collections import Counter

from recompute_lab.instruments.audit.audit import CANNOT_SEE, Audit
from recompute_lab.instruments.audit.finding import RULES, Finding


def text(audit: Audit) -> str:
    """A block of lines for each finding, then a summary, then what the audit cannot see."""
    return "\n".join([*map(str, audit.findings), *([""] if audit.findings else []), summary(audit)])


def summary(audit: Audit) -> str:
    files = f"{_number(audit.files, 'file')}, {_number(audit.lines, 'line')}"
    if not audit.findings:
        said = [f"nothing found in {files}"]
    else:
        by_rule = Counter(one.rule for one in audit.findings)
        said = [f"{', '.join(_number(by_rule[rule], rule) for rule in RULES if by_rule[rule])} in {files}"]
        counted = Counter(one.checkpoint for one in audit.findings)
        said.append(
            f"inside a checkpoint: {counted['direct']} directly, {counted['parent']} through a parent, "
            f'{counted["not seen"]} not seen (which is not "no")'
        )
    if audit.suppressed:
        said.append(f"{len(audit.suppressed)} suppressed, with a reason")
    said += [f"not audited: {note}" for note in audit.notes]
    said.append("what this cannot see:")
    said += [f"  - {line}" for line in CANNOT_SEE]
    return "\n".join(said)


def as_json(audit: Audit) -> str:
    """One list of objects, sorted by file and line."""
    return json.dumps([one.to_dict() for one in audit.findings], indent=2)


def github(audit: Audit) -> str:
    """Workflow commands: each finding stands at its line in the pull request."""
    return "\n".join(map(_annotation, audit.findings))


def _annotation(one: Finding) -> str:
    message = one.message if not one.guard else f"{one.message}; settled before any tensor is read: {one.guard}"
    message += f". Instead: {one.suggestion}"
    where = f"file={_escaped(one.path)}"
    if one.cell is None:
        where += f",line={one.line},endLine={one.end_line},col={one.column}"
    else:  # the lines of a notebook's file are those of its JSON
        message = f"cell {one.cell}, line {one.line}: {message}"
    return f"::warning {where},title={one.rule}::{_escaped(message, data=True)}"


def _escaped(value: str, data: bool = False) -> str:
    """As GitHub's toolkit escapes the message, and, with more characters, a property."""
    value = value.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    return value if data else value.replace(":", "%3A").replace(",", "%2C")


def _number(count: int, noun: str) -> str:
    plural = {"tensor-branch": "tensor-branches"}.get(noun, f"{noun}s")
    return f"{count:,} {noun if count == 1 else plural}"
