"""Twelve faulty training steps, one a file: each a `Model` (see `specimens.steps`) whose segment is a method of it."""

from recompute_lab.specimens.drills.adaptive import Weighed
from recompute_lab.specimens.drills.balance import Balanced
from recompute_lab.specimens.drills.codebook import Quantised
from recompute_lab.specimens.drills.depth import Repeated
from recompute_lab.specimens.drills.jitter import Jittered
from recompute_lab.specimens.drills.locked import Locked
from recompute_lab.specimens.drills.memo import Standardised
from recompute_lab.specimens.drills.memory import Translator
from recompute_lab.specimens.drills.probe import Probed
from recompute_lab.specimens.drills.recurrent import Recurrent
from recompute_lab.specimens.drills.residual import Residual
from recompute_lab.specimens.drills.route import Routed

__all__ = [
    "Balanced",
    "Jittered",
    "Locked",
    "Probed",
    "Quantised",
    "Recurrent",
    "Repeated",
    "Residual",
    "Routed",
    "Standardised",
    "Translator",
    "Weighed",
]
