"""Run a study, and put each run where it belongs as it ends, so that it goes on where it was stopped."""

import argparse
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from tqdm import tqdm

from recompute_lab.lessons.stored_study import seal


def run(description: str, path: Path, header: dict, runs: Mapping[str, Callable[[], object]]) -> None:
    """Make each of `runs` that is not stored yet, and store what it returns under its name."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--fresh", action="store_true", help="forget what is stored")
    done = {} if parser.parse_args().fresh else stored(path, header)
    torch.set_num_threads(1)
    for name in (bar := tqdm([name for name in runs if name not in done], unit="run")):
        bar.set_postfix_str(name)
        done[name] = runs[name]()
        store(path, header, done)


def stored(path: Path, header: dict) -> dict:
    """The runs that are there and were made as they would be now."""
    if not path.is_file():
        return {}
    told = json.loads(path.read_text(encoding="utf-8"))
    sealed = told.pop("seal", None) == seal(told)
    curves = told.pop("curves")
    return curves if sealed and told == header else {}


def store(path: Path, header: dict, curves: dict) -> None:
    """One line per run; the old file stays as it was until the new one is whole."""
    path.parent.mkdir(exist_ok=True)
    rows = [f"{json.dumps(name)}: {json.dumps(run, separators=(',', ':'))}" for name, run in curves.items()]
    told = header | {"seal": seal(header | {"curves": curves})}
    text = json.dumps(told | {"curves": {}}, indent=1).removesuffix("{}\n}") + "{\n" + ",\n".join(rows) + "\n}\n}\n"
    fresh = path.with_suffix(".new")
    fresh.write_text(text, encoding="utf-8")
    os.replace(fresh, path)
