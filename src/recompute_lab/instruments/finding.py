"""The written finding: what moves a number that should not move, how to see it again, and the number without it."""

from __future__ import annotations

import numbers
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from recompute_lab.instruments.agreement import Agreement
from recompute_lab.instruments.results import Metric, compared

NOTHING = "nothing found"
_UNKNOWN = ("not found", "nothing that can be reached")  # what an agreement calls a reason that it has not


@dataclass(frozen=True)
class Finding:
    """One finding, of one metric of an evaluation. Prints as Markdown, and shows as such in a notebook.

    `metric` is its name; `confound` what moved it, in a sentence; `steps` how to see it again, one line each, complete
    enough for somebody else: the command, the seeds, the data. `before` has the values that runs gave with it, in
    order, `after` the one value, or those of several runs, once it is gone. `where` is a line, "file.py:12"; `notes`
    what else a reader should know. Raises ValueError, with a sentence, for what is missing, for a `before` of which
    all values are equal (there is nothing to find), and for an `after` of which they are not (it is not gone).

    For a metric in which there is nothing wrong: `Finding.nothing`.
    """

    metric: str
    confound: str
    steps: Sequence[str]
    before: Sequence
    after: object
    where: str = ""
    notes: Sequence[str] = field(default_factory=tuple)

    def __post_init__(self):
        set_ = object.__setattr__
        set_(
            self, "metric", _text("metric", self.metric, "the name of the number that moved, as the evaluation has it")
        )
        set_(self, "confound", _text("confound", self.confound, "what moved the number, in a sentence"))
        set_(self, "steps", _lines("steps", self.steps, "how somebody else sees it again, line by line"))
        notes = _lines("notes", self.notes, "what else a reader should know, line by line") if self.notes else ()
        set_(self, "notes", notes)
        set_(self, "before", _values("before", self.before))
        set_(self, "after", _values("after", self.after))
        if not self.found:
            self._must_not_move()
            return
        if len(self.before) < 2 or _equal(self.before):
            raise ValueError(
                "before: give what two runs or more gave, of which two differ; with equal values nothing was found, "
                "and that is written by Finding.nothing"
            )
        if not _equal(self.after):
            told = ", ".join(_brief(value, _digits(self.after)) for value in self.after)
            raise ValueError(f"after: its runs give {told}, so the confound is not gone")

    @classmethod
    def nothing(cls, metric: str, steps: Sequence[str], values, notes: Sequence[str] = ()) -> Finding:
        """The finding that there is nothing to find: `values` of all the runs, which are equal, and how they came."""
        return cls(metric, NOTHING, steps, _values("values", values), values, notes=notes)

    @classmethod
    def of(
        cls, agreement: Agreement, metric: str, steps: Sequence[str] = (), confound: str = "", after=None, **more
    ) -> Finding:
        """A finding with what an `Agreement` knows of a metric: the values, the first reason that moves it, the line.

        Where the metric agrees, that nothing was found. Where it does not, `after` has to be given: the agreement does
        not know what the number is once the confound is gone. Raises KeyError for a metric that is not there.
        """
        if not isinstance(agreement, Agreement):
            raise TypeError(f"give the Agreement that run_twice returned; got {type(agreement).__name__}")
        if metric not in agreement.metrics:
            raise KeyError(f"the result has {', '.join(agreement.metrics)}, and no {metric!r}")
        found = agreement.metrics[metric]
        steps = (*([steps] if isinstance(steps, str) else steps), _how(agreement))
        if found.agrees:
            return cls.nothing(metric, steps, [found.first] * agreement.times, notes=more.get("notes", ()))
        if after is None:
            raise ValueError("after: the agreement does not know it. Take the confound away, and run again")
        named = [reason for reason in agreement.reasons if metric in reason.moves]
        known = [reason for reason in named or agreement.reasons if reason.name not in _UNKNOWN]
        reason = next(iter(known), None)
        if not confound and reason is None:
            raise ValueError("confound: the check has not found it. Find out what moves the number, and say it here")
        sure = "" if reason is None or reason.proven else "suspected: "
        confound = confound or f"{sure}{reason.name}: {reason.told}"
        more.setdefault("where", (reason.where if reason else "") or agreement.where)
        return cls(metric, confound, steps, [found.first, found.second], after, **more)

    @property
    def found(self) -> bool:
        return self.confound != NOTHING

    def _must_not_move(self) -> None:
        if len(self.before) < 2 or not _equal(self.before):
            raise ValueError("values: that nothing was found takes two runs or more, which gave the same in every bit")

    def to_markdown(self) -> str:
        """The finding as it stands in a report."""
        if not self.found:
            rows = [
                f"### {_markdown(self.metric)}: {NOTHING}",
                "",
                f"**Value**, in {len(self.before)} runs: {_brief(self.after[0], 4)}",
            ]
        else:
            where = f" ({_markdown(str(self.where))})" if self.where else ""
            rows = [f"### {_markdown(self.metric)}", "", f"**Confound**: {_markdown(self.confound)}{where}", ""]
            digits = _digits(self.before)
            with_it = ", ".join(_brief(value, digits) for value in self.before)
            rows += [f"**With it**: {with_it}", "", f"**Without it**: {_brief(self.after[0], digits)}"]
        rows += ["", "**Steps**", "", *(f"{i}. {_markdown(step)}" for i, step in enumerate(self.steps, 1))]
        return "\n".join(rows + (["", *(f"- {_markdown(note)}" for note in self.notes)] if self.notes else []))

    def _repr_markdown_(self) -> str:
        return self.to_markdown()

    def __str__(self) -> str:
        return self.to_markdown()


def _markdown(text: str) -> str:
    """`text`, in which a name such as <lambda> is read, and not taken for HTML; code between backticks stays."""
    parts = text.split("`")
    return "`".join(part.replace("<", "\\<") if i % 2 == 0 else part for i, part in enumerate(parts))


def _how(agreement: Agreement) -> str:
    switch = "under" if agreement.deterministic else "without"
    return f"run the evaluation {agreement.times} times {switch} deterministic algorithms, and compare every bit"


def _text(part: str, given, meaning: str) -> str:
    if not isinstance(given, str) or not given.strip(" .…?"):
        raise ValueError(f"{part}: {meaning}; got {given!r}")
    return " ".join(given.split())


def _lines(part: str, given, meaning: str) -> tuple[str, ...]:
    lines = given.strip().splitlines() if isinstance(given, str) else list(given) if isinstance(given, Sequence) else []
    lines = [line for line in lines if not isinstance(line, str) or line.strip()]
    if not lines:
        raise ValueError(f"{part}: {meaning}; got {given!r}")
    return tuple(_text(part, line, "each line says something") for line in lines)


def _values(part: str, given) -> tuple:
    """What runs gave, one value each; a tuple also of a single one."""
    if part != "after" and getattr(given, "ndim", 0) == 1:  # the runs' values as an array or a tensor
        given = given.tolist()
    values = tuple(given) if isinstance(given, list | tuple) else (given,)
    if not values or any(map(_says_nothing, values)):
        raise ValueError(f"{part}: the numbers that the runs gave; got {given!r}")
    return values


def _says_nothing(value) -> bool:
    blank = isinstance(value, str) and not value.strip(" .…?")
    return blank or value is None or value is ... or isinstance(value, Iterator)


def _equal(values: tuple) -> bool:
    return all(compared({"": values[0]}, {"": value})[0].agrees for value in values)


def _digits(values: tuple) -> int:
    """As many as it takes to tell the values apart, and four at least."""
    apart = (d for d in range(4, 18) if len({_brief(value, d) for value in values}) > 1)
    return next(apart, 4)


def _brief(value, digits: int) -> str:
    if hasattr(value, "item") and getattr(value, "numel", lambda: 1)() == 1:
        value = value.item()
    if isinstance(value, float):
        return f"{value:.{digits}g}"
    if isinstance(value, str):
        return " ".join(value.split())
    return str(value) if isinstance(value, numbers.Number) else str(Metric("", value, value, True)).strip()
