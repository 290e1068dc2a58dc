"""Audit one source text: parse it, read it, and make findings of what was found."""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
import warnings
from dataclasses import dataclass, field

from recompute_lab.instruments.audit.checkpoints import Links, links
from recompute_lab.instruments.audit.finding import RULES, Finding
from recompute_lab.instruments.audit.outcome import decides
from recompute_lab.instruments.audit.reading.module import Module
from recompute_lab.instruments.audit.reading.records import Site
from recompute_lab.instruments.audit.sources import Source
from recompute_lab.instruments.audit.suggest import suggestion
from recompute_lab.instruments.audit.writes import lasting_writes

_RECURSION = 4_000  # frames of Python; a deep expression takes three a level
_SHOWN = 100  # characters of a source line
_TENSORS = re.compile("torch|[Tt]ensor")
_SUPPRESSION = re.compile(r"#\s*recompute-lab:\s*ignore\s*(?:\[([^\]]*)\])?[\s:,-]*(.*)")


@dataclass
class FileAudit:
    """`findings` have "not seen" for their checkpoint until all files are read. `keys`: each one's function, dotted."""

    findings: list[Finding] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    suppressed: list[tuple[Finding, str]] = field(default_factory=list)  # with the reason
    notes: list[str] = field(default_factory=list)
    links: Links = field(default_factory=Links)
    lines: int = 0


def audit_source(source: Source, path: str, dotted: str, sizes: bool = False) -> FileAudit:
    """Findings of one source. Never raises for what the text contains: what cannot be parsed is a note."""
    found = FileAudit(notes=[f"{path}: {note}" for note in source.notes], lines=source.text.count("\n") + 1)
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, _RECURSION))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of invalid escapes in somebody else's strings
            tree = ast.parse(source.text)
        module = Module(tree, dotted)
        if _TENSORS.search(source.text):  # else nothing to find, and much to mistake: Decimal has a logical_xor
            module.read()
        sites = [site for record in module.functions.values() for site in record.sites.values()]
        sites += lasting_writes(module)
        if sizes:
            sites += _sizes(module)
        _collect(found, sites, source, path, dotted)
        found.links = links(module)
        if module.too_deep:
            found.notes.append(f"{path}: nested too deeply to be followed: {', '.join(sorted(set(module.too_deep)))}")
    except SyntaxError as error:
        found.notes.append(f"{path}:{error.lineno or 1}: not Python that can be parsed: {error.msg}")
    except (RecursionError, MemoryError):
        found.notes.append(f"{path}: nested too deeply to be parsed")
    except ValueError as error:
        found.notes.append(f"{path}: not Python that can be parsed: {error}")
    finally:
        sys.setrecursionlimit(before)
    return found


def _sizes(module: Module) -> list[Site]:
    """Sizes that depend on values and decide nothing in Python: what is saved has another shape in another pass."""
    return [
        Site(node, "tensor-branch", "size", node, [], record, test=node)
        for record in module.functions.values()
        for node in record.sizes
    ]


def _collect(found: FileAudit, sites: list[Site], source: Source, path: str, dotted: str) -> None:
    lines = source.text.split("\n")
    comments = _suppressions(source, path, found.notes)
    seen = set()
    for site in sorted(sites, key=lambda s: (s.node.lineno, s.node.col_offset, s.rule)):
        try:
            one = _finding(site, lines, path, source)
        except RecursionError:
            found.notes.append(f"{path}:{site.node.lineno}: a {site.rule}, too deeply nested to say more of it")
            continue
        place = (one.rule, site.node.lineno, site.node.col_offset)
        if place in seen:
            continue
        seen.add(place)
        reason = _suppressed(comments, site) if comments else None
        if reason:
            found.suppressed.append((one, reason))
            continue
        if reason == "":
            found.notes.append(f"{one.where}: a suppression needs a reason, behind the bracket: it does not count")
        found.findings.append(one)
        found.keys.append(f"{dotted}.{site.function.name}")


def _finding(site: Site, lines: list[str], path: str, source: Source) -> Finding:
    node = site.node
    what = "shape" if site.form == "size" else decides(site)
    last = _end_of_condition(site, lines)
    read_line = site.origin.lineno if site.origin is not None and hasattr(site.origin, "lineno") else None
    cell, line = (None, node.lineno)
    if source.cells is not None:
        cell, line = source.cells[node.lineno - 1]
        shift = line - node.lineno
        last += shift
        read_cell, read_at = source.cells[read_line - 1] if read_line else (cell, None)
        read_line = read_at if read_cell == cell else None
    text = lines[node.lineno - 1].strip()
    return Finding(
        path=path,
        line=line,
        column=len(lines[node.lineno - 1].encode()[: node.col_offset].decode(errors="replace")) + 1,
        rule=site.rule,
        decides=what,
        checkpoint="not seen",
        guard=" and ".join(_bracketed(g) for g in dict.fromkeys(site.guards)) or None,
        suggestion=suggestion(site, what),
        message=_message(site, what, read_line, line),
        end_line=last,
        read_line=read_line,
        function=site.function.name,
        source=text if len(text) <= _SHOWN else f"{text[:_SHOWN]} ...",
        suspected=site.suspected,
        cell=cell,
    )


def _end_of_condition(site: Site, lines: list[str]) -> int:
    """With the lines of closing brackets that a formatter puts behind it."""
    if site.test is None:
        return site.node.lineno
    last = site.test.end_lineno
    body = getattr(site.node, "body", None)
    if isinstance(body, list) and body and isinstance(body[0], ast.stmt):
        while last + 1 < body[0].lineno and lines[last].lstrip().startswith(")"):
            last += 1
    return last


_OUTCOME = {
    "graph": "which operations run",
    "raise": "whether an exception is raised",
    "shape": "a size",
    "state": "what is kept",
    "telemetry": "what is logged or counted, as far as this class shows",
}
_FORMS = {
    "filter": "the filter of a comprehension",
    "index": "the choice of an element",
    "and/or": "`and`/`or`, used as a value",
    "for": "the number of rounds",
    "size": "an indexing",
    "ternary": "a ternary",
}


def _message(site: Site, what: str, read_line: int | None, line: int) -> str:
    if site.rule == "lasting-write":
        if site.form == "add":
            return f"every pass changes {site.subject} once more: under a checkpoint twice for each step"
        if site.form == "container":
            return f"every pass changes what {site.subject} holds: under a checkpoint twice for each step"
        return f"{site.subject} outlives the call: under a checkpoint the recomputation writes it again, and last"
    read = "" if read_line in (None, line) else f", read in line {read_line},"
    may = "may decide" if site.suspected else "decides"
    form = _FORMS.get(site.form, site.form)
    return f"{form}: a tensor's value{read} {may} {_OUTCOME[what]}"


def _bracketed(text: str) -> str:
    return f"({text})" if " or " in text else text


def _suppressions(source: Source, path: str, notes: list[str]) -> dict[int, tuple[set[str], str]]:
    """By line: the rules that a comment leaves out, and its reason. In a string it is no comment."""
    if "recompute-lab:" not in source.text:
        return {}
    found = {}
    try:
        for token in tokenize.generate_tokens(io.StringIO(source.text).readline):
            match = _SUPPRESSION.search(token.string) if token.type == tokenize.COMMENT else None
            if match is None:
                continue
            rules = set(re.split(r"[\s,]+", match[1].strip())) if match[1] is not None else set(RULES)
            if rules - RULES.keys():
                notes.append(f"{path}:{token.start[0]}: there is no rule {', '.join(sorted(rules - RULES.keys()))!r}")
            found[token.start[0]] = (rules, match[2].strip())
    except (tokenize.TokenError, SyntaxError):
        pass  # the parser has read it: what is left is a detail at its end
    return found


def _suppressed(comments: dict[int, tuple[set[str], str]], site: Site) -> str | None:
    """The reason of a suppression for this rule on one of the condition's lines; "" where it gives none."""
    last = site.test.end_lineno if site.test is not None else site.node.lineno
    body = getattr(site.node, "body", None)
    if isinstance(body, list) and body and isinstance(body[0], ast.stmt):
        last = max(last, body[0].lineno - 1)  # `):  # recompute-lab: ...`, where formatters put it
    for number in range(site.node.lineno, last + 1):
        rules, reason = comments.get(number, ((), ""))
        if site.rule in rules:
            return reason
    return None
