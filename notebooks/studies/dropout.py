"""Trains the networks of lesson 04 and stores what they learned: notebooks/data/dropout.json.

Each run is stored as it ends. Stopped and started again, the study goes on where it was; what was computed with another
torch or other settings is computed anew. `--fresh` starts from nothing.
"""

import argparse

import torch
from studies.store import store, stored
from tqdm import tqdm

from recompute_lab.lessons.dropout_study import STORED, conditions, header, measure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fresh", action="store_true", help="forget what is stored")
    done = {} if parser.parse_args().fresh else stored(STORED, header())
    torch.set_num_threads(1)
    todo = [condition for condition in conditions() if condition[0] not in done]
    for name, p, depth, treatment in (bar := tqdm(todo, unit="run")):
        bar.set_postfix_str(name)
        done[name] = measure(p, depth, treatment)
        store(STORED, header(), done)


if __name__ == "__main__":
    main()
