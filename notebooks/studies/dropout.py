"""Trains the networks of lesson 04 and stores what they learned: notebooks/data/dropout.json.

Each run is stored as it ends. Stopped and started again, the study goes on where it was; what was computed with another
torch or other settings is computed anew. `--fresh` starts from nothing.
"""

import argparse
import json
import os

import torch
from tqdm import tqdm

from recompute_lab.lessons.dropout_study import STORED, conditions, header, measure


def stored() -> dict:
    """The runs that are there and were made as they would be now."""
    if not STORED.is_file():
        return {}
    told = json.loads(STORED.read_text(encoding="utf-8"))
    curves = told.pop("curves")
    return curves if told == header() else {}


def store(curves: dict) -> None:
    """one line per run; the old file stays as it was until the new one is whole."""
    STORED.parent.mkdir(exist_ok=True)
    rows = [f"{json.dumps(name)}: {json.dumps(run, separators=(',', ':'))}" for name, run in curves.items()]
    text = json.dumps(header() | {"curves": {}}, indent=1).removesuffix("{}\n}") + "{\n" + ",\n".join(rows) + "\n}\n}\n"
    fresh = STORED.with_suffix(".new")
    fresh.write_text(text, encoding="utf-8")
    os.replace(fresh, STORED)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fresh", action="store_true", help="forget what is stored")
    done = {} if parser.parse_args().fresh else stored()
    torch.set_num_threads(1)
    todo = [condition for condition in conditions() if condition[0] not in done]
    for name, p, depth, treatment in (bar := tqdm(todo, unit="run")):
        bar.set_postfix_str(name)
        done[name] = measure(p, depth, treatment)
        store(done)


if __name__ == "__main__":
    main()
