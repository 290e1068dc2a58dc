"""What the witness says: a verdict for each implementation, the causes in order, the effect, the repair."""

from __future__ import annotations

import html
import json
import textwrap
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field

REPLAYABLE, SIDE_EFFECT, SILENT, LOUD = VERDICTS = ("replayable", "side effect", "silent", "loud")
_MEANING = {
    REPLAYABLE: "the second run is the first",
    SIDE_EFFECT: "gradients are right, but something happens twice",
    SILENT: "gradients are wrong, and nothing raises",
    LOUD: "it raises",
    "not run": "no verdict",
}
_LINES, _COLUMNS = 15, 100


@dataclass(frozen=True)
class Cause:
    """One reason why the two runs differ, or would.

    `name` is what differs, as the code calls it; `where` the source line, "file.py:12", "" where none is known.
    `proven` is True where undoing this difference, and no more, made the passes agree, or where it was seen to happen.
    `under` names the implementations that it concerns; `told` and `repair` are sentences.
    """

    name: str
    where: str
    proven: bool
    told: str
    repair: str
    kind: str = "state"
    under: tuple[str, ...] = ("reentrant", "non-reentrant")

    @property
    def status(self) -> str:
        return "proven" if self.proven else "suspected"


@dataclass
class Report:
    """The answer for one segment.

    `reentrant` and `non_reentrant` are verdicts: "replayable", "side effect", "silent" or "loud". `examine` has run
    both, and `verdict` is the worse of the two. Where a run was watched, `verdict` is that of this run, which is
    non-reentrant, and `reentrant` says what that implementation would do.

    `causes` is ordered, the first one to look at first. `effect` says which gradients and buffers are concerned and
    how far, `notes` what could not be decided. `strip` holds the saved tensors of both passes, where they were
    recorded.
    """

    segment: str
    reentrant: str = "not run"
    non_reentrant: str = "not run"
    causes: list[Cause] = field(default_factory=list)
    effect: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    strip: object = None
    watched: bool = False

    @property
    def verdict(self) -> str:
        return self.non_reentrant if self.watched else max((self.reentrant, self.non_reentrant), key=severity)

    def __str__(self) -> str:
        """At most 15 lines of at most 100 columns."""
        meaning = _MEANING[self.verdict]
        if self.watched and severity(self.reentrant) > severity(self.non_reentrant):
            meaning = f"as it ran; reentrant would be {self.reentrant}"
        lines = [f"{self.segment}: {self.verdict.upper()} ({meaning})"]
        would = "reentrant would be" if self.watched else "reentrant"
        lines.append(f"  non-reentrant: {self.non_reentrant}    {would}: {self.reentrant}")
        tail = [f"  effect: {line}" for line in self.effect] + [f"  note: {line}" for line in self.notes]
        room = _LINES - len(lines) - min(len(tail), 4)
        for number, cause in enumerate(self.causes, 1):
            entry = self._entry(number, cause)
            left = len(self.causes) - number
            if len(entry) + (1 if left else 0) > room:
                lines.append(f"  and {left + 1} more: {', '.join(c.name for c in self.causes[number - 1 :])}")
                break
            lines += entry
            room -= len(entry)
        lines += tail
        return "\n".join(_cut(line) for line in lines[:_LINES])

    def _entry(self, number: int, cause: Cause) -> list[str]:
        only = "" if len(cause.under) > 1 else f", {cause.under[0]} only"
        tail = f"{' at ' + cause.where if cause.where else ''} [{cause.status}{only}]"
        head = f"  {number}. {cause.name}"
        room = _COLUMNS - len(tail)
        return [
            (head if len(head) <= room else head[: room - 3] + "...") + tail,
            *_indented(cause.told),
            *_indented("repair: " + cause.repair),
        ]

    def to_json(self) -> str:
        """The same as JSON: segment, verdicts, causes with all their fields, effect, notes."""
        said = {
            "segment": self.segment,
            "verdict": self.verdict,
            "reentrant": self.reentrant,
            "non_reentrant": self.non_reentrant,
            "causes": [asdict(cause) for cause in self.causes],
            "effect": self.effect,
            "notes": self.notes,
        }
        return json.dumps(said, ensure_ascii=False, indent=2)

    def _repr_html_(self) -> str:
        would = "would be " if self.watched else ""
        rows = [
            (str(number), _code(c.name), _code(c.where), c.status, ", ".join(c.under), _safe(c.told), _safe(c.repair))
            for number, c in enumerate(self.causes, 1)
        ]
        head = "".join(f"<th>{name}</th>" for name in ("", "cause", "where", "", "under", "what happens", "repair"))
        body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
        table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>" if rows else ""
        said = "".join(f"<li>{_safe(line)}</li>" for line in self.effect + self.notes)
        return (
            f"<div><p><b>{_safe(self.segment)}: {self.verdict}</b> ({_MEANING[self.verdict]})<br>"
            f"non-reentrant: {self.non_reentrant}; reentrant: {would}{self.reentrant}</p>"
            f"{table}{_strip(self.strip)}{f'<ul>{said}</ul>' if said else ''}</div>"
        )


def _safe(text: str) -> str:
    return html.escape(text)


def _code(text: str) -> str:
    return f"<code>{html.escape(text)}</code>"


def _strip(pairs) -> str:
    """The saved tensors of both passes as two rows of cells; where one is missing, its partner has a cross."""
    if not pairs:
        return ""
    rows = []
    for title, own, other in (("forward", 0, 1), ("recomputation", 1, 0)):
        cells = []
        for pair in pairs:
            row, partner = pair[own], pair[other]
            mark = "&nbsp;" if row is None else "&#10005;" if partner is None else "&#9632;"
            told = "" if row is None else _safe(f"{row.position}: {row.operator} {list(row.shape)} at {row.where}")
            cells.append(f'<span title="{told}" style="font-size:9px">{mark}</span>')
        rows.append(f"<div>{title}: {''.join(cells)}</div>")
    return f'<div style="font-family:monospace;line-height:1.2">{"".join(rows)}</div>'


def severity(verdict: str) -> int:
    """Silent is worse than loud: the run that stops is the lucky one."""
    return {"not run": -1, REPLAYABLE: 0, SIDE_EFFECT: 1, LOUD: 2, SILENT: 3}[verdict]


def worst(reports: Iterable[Report]) -> Report | None:
    """The report with the worst verdict; among equals, the one with the most proven causes."""

    def rank(report: Report) -> tuple[int, int, int]:
        return severity(report.verdict), sum(c.proven for c in report.causes), severity(report.reentrant)

    return max(reports, key=rank, default=None)


def _indented(text: str) -> list[str]:
    return textwrap.wrap(text, _COLUMNS - 5, initial_indent="     ", subsequent_indent="     ", max_lines=2)


def _cut(line: str) -> str:
    return line if len(line) <= _COLUMNS else line[: _COLUMNS - 4] + " ..."
