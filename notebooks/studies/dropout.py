"""Trains the networks of lesson 04 and stores what they learned: notebooks/data/dropout.json.

Each run is stored as it ends. Stopped and started again, the study goes on where it was; what was computed with another
torch or other settings is computed anew. `--fresh` starts from nothing.
"""

from functools import partial

from studies.store import run

from recompute_lab.lessons.dropout_study import STORED, conditions, header, measure

if __name__ == "__main__":
    run(__doc__.splitlines()[0], STORED, header(), {name: partial(measure, *how) for name, *how in conditions()})
