"""What comes of running an evaluation twice, and how it is told."""

from __future__ import annotations

from dataclasses import dataclass, field

from recompute_lab.instruments.narrowing import Parting
from recompute_lab.instruments.results import Metric
from recompute_lab.instruments.witness.words import few


@dataclass(frozen=True)
class Reason:
    """Why a run found another world than the first.

    `kind` is that of a `Snapshot` ("buffer", "attribute", "random stream", ...), "time", or "not to be put back".
    `proven`: with this one thing left as a run left it the result is another, and with all put back it is not. `moves`
    names the entries of the result that it moves, as far as that is known; `repair` says what to do about it.
    """

    kind: str
    name: str
    told: str
    proven: bool = False
    where: str = ""
    moves: tuple[str, ...] = ()
    repair: str = ""

    def __str__(self) -> str:
        where = f", {self.where}" if self.where else ""
        moves = f", moves {few(self.moves)}" if self.proven and self.kind != "time" else ""
        return f"{'proven' if self.proven else 'suspected'}: {self.name}{where}{moves}: {self.told}"


@dataclass
class Agreement:
    """What came of running an evaluation several times.

    `metrics` has each entry of the result by name, compared. `first_sample` is the number of the first sample that came
    out otherwise, or its name; None where nothing per sample is known. `where` is the first operator that did,
    "file.py:12 (mul)", and `parting` all that is known of it; "" where none of torch's did, or none was seen. `reasons`
    come with the likeliest first. `left` names what the evaluation left behind, which has been put back; `lost` what
    could not be. `without_switch` is the same check without deterministic algorithms; None where that is what was asked
    for.
    """

    metrics: dict[str, Metric]
    deterministic: bool
    times: int
    run: int = 2
    first_sample: int | str | None = None
    parting: Parting | None = None
    reasons: list[Reason] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    threads: int = 1
    cuda: bool = False
    without_switch: Agreement | None = None

    @property
    def agrees(self) -> bool:
        """True where every entry of every run has the bits of the first run's."""
        return all(metric.agrees for metric in self.metrics.values())

    @property
    def where(self) -> str:
        return f"{self.parting.where} ({self.parting.name})" if self.parting else ""

    @property
    def differing(self) -> list[Metric]:
        return [metric for metric in self.metrics.values() if not metric.agrees]

    @property
    def verdict(self) -> str:
        """The first line of what is printed."""
        way = "under deterministic algorithms" if self.deterministic else "without deterministic algorithms"
        if self.agrees:
            many = len(self.metrics)
            counted = f"{many} {'entries' if many > 1 else 'entry'} of the result"
            return f"AGREES: {self.times} runs {way}, {counted}, every bit"
        return f"DISAGREES {way}: run {self.run} of {self.times} with run 1"

    def __str__(self) -> str:
        lines = [self.verdict]
        differing = self.differing
        lines += [f"  {metric}" for metric in differing[:3]]
        if len(differing) > 3:
            lines.append(f"  and {few([metric.name for metric in differing[3:]])}")
        if differing and len(differing) < len(self.metrics):
            lines.append(f"  equal in every bit: {few([m.name for m in self.metrics.values() if m.agrees])}")
        if self.first_sample is not None:
            lines.append(f"  first sample that differs: {self.first_sample}")
        if self.parting is not None:
            lines.append(f"  first operator that differs: {self.parting}")
        lines += [f"  {reason}" for reason in self.reasons[:3]]
        if self.reasons and self.reasons[0].repair:
            lines.append(f"  repair: {self.reasons[0].repair}")
        if self.left or self.lost:
            back = f"{few(self.left)}" if self.left else ""
            lost = f"too large to be put back: {few(self.lost)}" if self.lost else ""
            lines.append(f"  left behind, and put back: {'; '.join(filter(None, (back, lost)))}")
        if self.skipped:
            lines.append(f"  not compared: {few([f'{name} ({kind})' for name, kind in self.skipped.items()])}")
        if self.without_switch is not None:
            lines.append(f"  without the switch: {self._apart()}")
        return "\n".join(lines)

    def _apart(self) -> str:
        """What the check says without the switch, and what that is worth."""
        other = self.without_switch
        racing = other.cuda or other.threads > 1
        if other.agrees:
            return "agrees" + (" (this time)" if racing else " (one thread: no additions race)")
        named = few([metric.name for metric in other.differing])
        if not self.agrees:
            return f"disagrees ({named}), which adds nothing"
        moved = [metric.name for metric in other.differing if not metric.by_rounding]
        why = "additions in no fixed order" if racing else "memory read unwritten, or code that asks for the switch"
        told = f"disagrees ({named}): {why}"
        return told + (f"; more than rounding: {few(moved)}" if moved else "; no more than rounding")
