"""Forward, Twice: what activation checkpointing does behind a training run's back.

The instruments are importable from here; they take any segment, and need torch alone. Figures are in
`recompute_lab.views`, the lessons' own code in `recompute_lab.specimens` and `recompute_lab.lessons`.
"""

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
    "Cause",
    "Finding",
    "Mismatch",
    "Recorder",
    "Report",
    "Witness",
    "align",
    "assert_replayable",
    "divergence",
    "examine",
    "passes",
    "record",
    "run_twice",
    "same_bits",
    "unmatched",
    "writes",
]
