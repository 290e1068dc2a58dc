"""Forward, Twice: what activation checkpointing does behind a training run's back.

The instruments are importable from here; they take any segment, and need torch alone. The audit reads source, and
needs not even that: what is imported from here is loaded when it is asked for. Figures are in `recompute_lab.views`,
the lessons' own code in `recompute_lab.specimens` and `recompute_lab.lessons`.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # for editors and type checkers: the same names as below
    from recompute_lab.instruments.audit import Audit, audit
    from recompute_lab.instruments.checkpointing import (
        NO_EARLY_STOP,
        NON_REENTRANT,
        PLAIN,
        REENTRANT,
        STRATEGIES,
        Mismatch,
        passes,
    )
    from recompute_lab.instruments.evaluation import run_twice
    from recompute_lab.instruments.finding import Finding
    from recompute_lab.instruments.gradients import divergence
    from recompute_lab.instruments.ledger import Recorder, align, record, unmatched
    from recompute_lab.instruments.state import same_bits
    from recompute_lab.instruments.witness import Cause, Report, Witness, assert_replayable, examine
    from recompute_lab.instruments.writes import writes

__version__ = "0.1.0"
__all__ = [
    "NON_REENTRANT",
    "NO_EARLY_STOP",
    "PLAIN",
    "REENTRANT",
    "STRATEGIES",
    "Audit",
    "Cause",
    "Finding",
    "Mismatch",
    "Recorder",
    "Report",
    "Witness",
    "align",
    "assert_replayable",
    "audit",
    "divergence",
    "examine",
    "passes",
    "record",
    "run_twice",
    "same_bits",
    "unmatched",
    "writes",
]

_FROM = {
    "audit": "Audit audit",
    "checkpointing": "NO_EARLY_STOP NON_REENTRANT PLAIN REENTRANT STRATEGIES Mismatch passes",
    "evaluation": "run_twice",
    "finding": "Finding",
    "gradients": "divergence",
    "ledger": "Recorder align record unmatched",
    "state": "same_bits",
    "witness": "Cause Report Witness assert_replayable examine",
    "writes": "writes",
}
_WHERE = {name: f"recompute_lab.instruments.{module}" for module, names in _FROM.items() for name in names.split()}


def __getattr__(name: str):
    if name not in _WHERE:
        raise AttributeError(f"module 'recompute_lab' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_WHERE[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_WHERE})
