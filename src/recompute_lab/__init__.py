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
from recompute_lab.instruments.gradients import divergence
from recompute_lab.instruments.ledger import Recorder, align, record, unmatched
from recompute_lab.instruments.state import same_bits
from recompute_lab.instruments.writes import writes

__version__ = "0.1.0"
__all__ = [
    "NON_REENTRANT",
    "NO_EARLY_STOP",
    "PLAIN",
    "REENTRANT",
    "STRATEGIES",
    "Mismatch",
    "Recorder",
    "align",
    "divergence",
    "passes",
    "record",
    "same_bits",
    "unmatched",
    "writes",
]
