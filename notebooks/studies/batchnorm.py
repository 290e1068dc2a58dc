"""Trains the networks of lesson 05 and stores how they evaluate: notebooks/data/batchnorm.json.

Each run is stored as it ends. Stopped and started again, the study goes on where it was; what was computed with another
torch or other settings is computed anew. `--fresh` starts from nothing.
"""

from functools import partial

from studies.store import run

from recompute_lab.lessons.batchnorm_study import STORED, conditions, header, key, measure

if __name__ == "__main__":
    run(__doc__.splitlines()[0], STORED, header(), {key(*each): partial(measure, each) for each in conditions()})
