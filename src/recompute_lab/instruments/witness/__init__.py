"""The witness: what differs between a segment's two passes, and which of it is the cause."""

from recompute_lab.instruments.witness.examine import assert_replayable, examine
from recompute_lab.instruments.witness.report import Cause, Report
from recompute_lab.instruments.witness.watch import Witness

__all__ = ["Cause", "Report", "Witness", "assert_replayable", "examine"]
