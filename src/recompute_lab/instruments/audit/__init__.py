"""The audit: where does source branch on a tensor's value, or write what outlives a forward? Nothing is run.

sources.py      finds files, and reads scripts and notebooks
kinds.py        what a value may be: a tensor, a number read from one, a plain value
expressions.py, calls.py, statements.py, module.py    read a module function by function, and find the decisions
writes.py       finds the lasting writes
checkpoints.py  follows what a checkpoint runs, across files
outcome.py, suggest.py, one_file.py, finding.py       make a finding of each
audit.py, formats.py    all files, on all cores; text, JSON, GitHub's annotations
"""

from recompute_lab.instruments.audit.audit import CANNOT_SEE, Audit, audit
from recompute_lab.instruments.audit.finding import Finding

__all__ = ["CANNOT_SEE", "Audit", "Finding", "audit"]
