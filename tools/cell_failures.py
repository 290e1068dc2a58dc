"""What became of the cells of a notebook under nbval, in words: reads what the plugin cell_report wrote."""

from __future__ import annotations

import difflib
import json
from pathlib import Path


def shortened(text: str, columns: int) -> str:
    """One line of at most so many columns."""
    text = " ".join(text.split())
    return text if len(text) <= columns else text[: columns - 1] + "…"


def differing(stored: str, here: str) -> list[str]:
    """The first lines in which two outputs differ, as stored and as they came out."""
    before, after = stored.splitlines(), here.splitlines()
    told = []
    for tag, i, k, j, m in difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if tag != "equal":
            told += [f"stored: {before[i] if i < k else '(nothing)'}", f"here:   {after[j] if j < m else '(nothing)'}"]
            more = max(k - i, m - j) - 1
            told += [f"and {more} more line{'s' * (more > 1)} in a row"] if more else []
            break
    return told


def reason(record: dict, timeout: float) -> tuple[str, list[str]]:
    """What went wrong in a cell, in words, and its details."""
    if record["why"].startswith("Timeout"):
        # nbval waits for the answer of a kernel that has died, and then cannot interrupt it.
        died = "Failed to interrupt" in record["why"]
        return f"did not end within {timeout:g} s" + (" (kernel died, or stuck)" if died else ""), []
    if record["raised"]:
        return "raised", [record["raised"].strip().splitlines()[0]]
    details = differing(record["stored"], record["here"])
    return ("printed something else", details) if details else (record["why"].splitlines()[0], [])


def where(path: Path, code_cell: int) -> tuple[str, str]:
    """A cell by its number (from 1, Markdown included) with JupyterLab's prompt, and its first line."""
    cells = json.loads(path.read_bytes())["cells"]
    code = [(number, "".join(cell["source"])) for number, cell in enumerate(cells, 1) if cell["cell_type"] == "code"]
    number, source = code[code_cell]
    return f"cell {number}, [{code_cell + 1}]", f"`{shortened((source.splitlines() or [''])[0], 34)}`"


def records_of(report: Path) -> list[dict]:
    """What the plugin wrote; a last line that was cut off does not count."""
    records = []
    for line in report.read_text(encoding="utf-8").splitlines() if report.exists() else []:
        try:
            records.append(json.loads(line))
        except ValueError:
            break
    return records
