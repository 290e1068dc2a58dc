"""A finding: one place, what it decides, whether a checkpoint ever runs it, what to write instead."""

from __future__ import annotations

from dataclasses import asdict, dataclass

RULES = {
    "tensor-branch": "a branch that a tensor's value decides",
    "lasting-write": "a write that outlives the call, inside a forward",
}
_CHECKPOINT = {"direct": "yes, directly", "parent": "yes, through a parent", "not seen": "not seen"}


@dataclass(frozen=True)
class Finding:
    """`line` and `column` (both from 1) are those of the deciding statement or expression, `end_line` the last line
    of its condition, `read_line` where the tensor's value was read. In a notebook lines are counted in `cell` (from 1).

    `decides`: "graph", "raise", "shape", "telemetry" or "state". `checkpoint`: "direct" (its function is given to a
    checkpoint), "parent" (something that calls it is), or "not seen", which is not "no". `guard`: the condition that is
    settled before any tensor is read, or None: it is what arms the branch. `suspected`: a tensor by circumstance only.
    """

    path: str
    line: int
    column: int
    rule: str
    decides: str
    checkpoint: str
    guard: str | None
    suggestion: str
    message: str
    end_line: int
    read_line: int | None
    function: str
    source: str
    suspected: bool = False
    cell: int | None = None

    @property
    def where(self) -> str:
        cell = f"cell {self.cell}:" if self.cell is not None else ""
        return f"{self.path}:{cell}{self.line}:{self.column}"

    def to_dict(self) -> dict:
        """For JSON: strings, numbers, booleans and None."""
        return asdict(self)

    def __str__(self) -> str:
        lines = [f"{self.where}: {self.rule}  {self.source}"]
        lines.append(f"    {self.message}; inside a checkpoint: {_CHECKPOINT[self.checkpoint]}")
        if self.guard:
            lines.append(f"    settled before any tensor is read: {self.guard}  (dormant is not fixed: this arms it)")
        lines.append(f"    instead: {self.suggestion}")
        return "\n".join(lines)
