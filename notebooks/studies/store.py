"""Where a study puts each run as it ends, so that it goes on where it was stopped."""

import json
import os
from pathlib import Path


def stored(path: Path, header: dict) -> dict:
    """The runs that are there and were made as they would be now."""
    if not path.is_file():
        return {}
    told = json.loads(path.read_text(encoding="utf-8"))
    curves = told.pop("curves")
    return curves if told == header else {}


def store(path: Path, header: dict, curves: dict) -> None:
    """One line per run; the old file stays as it was until the new one is whole."""
    path.parent.mkdir(exist_ok=True)
    rows = [f"{json.dumps(name)}: {json.dumps(run, separators=(',', ':'))}" for name, run in curves.items()]
    text = json.dumps(header | {"curves": {}}, indent=1).removesuffix("{}\n}") + "{\n" + ",\n".join(rows) + "\n}\n}\n"
    fresh = path.with_suffix(".new")
    fresh.write_text(text, encoding="utf-8")
    os.replace(fresh, path)
