"""The audit: where does source branch on a tensor's value, or write what outlives a forward? Nothing is run.

sources.py      finds files, and reads scripts and notebooks
reading/        reads a module: what each value may be, and which decisions hang on a tensor's
writes.py       the lasting writes
outcome.py, suggest.py    what a decision decides, and what to write instead
one_file.py, finding.py   the findings of a file
checkpoints.py  what a checkpoint runs, followed across files
audit.py, formats.py      all files, on all cores; as text, JSON, annotations for GitHub
"""

from recompute_lab.instruments.audit.audit import CANNOT_SEE, Audit, audit
from recompute_lab.instruments.audit.finding import Finding

__all__ = ["CANNOT_SEE", "Audit", "Finding", "audit"]
