"""Measure all blocks and models of the zoo, and store what came of it: `PYTHONPATH=src:tests python -m models.measure`.

For each block: the verdict for each implementation found without any instrument, the verdict of `examine`, that of a
witness that rides along at the seed where the first found its worst, the first cause, and seconds. With names as
arguments only those are measured anew that contain one of them. The table goes to table.json beside this file, when all
is measured.
"""

from __future__ import annotations

import functools
import json
import platform
import random
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
import transformers
from models import routers
from models.independent import Comparison, compare, differing, loss_of, seeded, state_of
from models.transformers_blocks import MODELS
from models.transformers_blocks import seeded as same
from models.whole import compare_whole, step
from models.zoo import ZOO
from torch.utils.checkpoint import checkpoint

from recompute_lab.instruments.witness import Report, Witness, examine

TABLE = Path(__file__).with_name("table.json")
PART = TABLE.with_suffix(".part")  # until all is measured: what is interrupted must not pass for the table


def examined(make: Callable) -> tuple[Report, bool]:
    """The report on a block, and whether block, arguments and random streams are afterwards as they were."""
    block, args, kwargs = make()
    seeded(0)
    before = _all_of(block)
    report = examine(block, *args, **kwargs)
    return report, not differing(before, _all_of(block))


def _all_of(block) -> dict:
    streams = {"torch": torch.get_rng_state(), "Python": repr(random.getstate()), "NumPy": repr(np.random.get_state())}
    grads = {f"{n}.grad": "none" if p.grad is None else "some" for n, p in block.named_parameters()}
    return state_of(block) | {n: p.detach().clone() for n, p in block.named_parameters()} | grads | streams


def ridden(make: Callable, seed: int) -> str:
    """What a witness says that rides along in one step: the verdict for the non-reentrant implementation."""
    block, args, kwargs = make()
    witness = Witness()
    seeded(seed)
    try:
        segment = functools.partial(block, **kwargs)
        loss_of(checkpoint(segment, *args, use_reentrant=False, context_fn=witness.context_fn)).backward()
    except Exception:
        pass  # the witness has a report on it
    return witness.report().non_reentrant


def block_row(make: Callable) -> dict:
    began = time.perf_counter()
    built = make()
    seconds = {"build": time.perf_counter() - began}
    began = time.perf_counter()
    found = compare(make)
    seconds["compare"] = time.perf_counter() - began
    began = time.perf_counter()
    report, untouched = examined(make)
    seconds["examine"] = time.perf_counter() - began
    riding = ridden(make, found["non-reentrant"].seed)
    return {
        "block": type(built[0]).__name__,
        "parameters": sum(p.numel() for p in built[0].parameters()),
        "verdicts": {name: c.verdict for name, c in found.items()},
        "examine": {"reentrant": report.reentrant, "non-reentrant": report.non_reentrant},
        "rides along": riding,
        "first cause": _first(report),
        "found": {name: _short(c) for name, c in found.items() if c.verdict != "replayable"},
        "repeatable": found["reentrant"].repeatable,
        "left as it was": untouched,
        "seconds": {name: round(s, 2) for name, s in seconds.items()},
    }


def model_row(public) -> dict:
    """Of a whole model with its own checkpointing."""
    found = compare_whole(public.model)
    witness = Witness()
    step(same(public.model), found["non-reentrant"].seed, use_reentrant=False, context_fn=witness.context_fn)
    report = witness.report()
    return {
        "verdicts": {name: c.verdict for name, c in found.items()},
        "rides along": {"reentrant": report.reentrant, "non-reentrant": report.non_reentrant},
        "checkpointed calls": len(witness.reports),
        "first cause": _first(report),
        "found": {name: _short(c) for name, c in found.items() if c.verdict != "replayable"},
    }


def _first(report: Report) -> dict | None:
    if not report.causes:
        return None
    cause = report.causes[0]
    return {"name": cause.name, "where": cause.where, "proven": cause.proven}


def _short(found: Comparison) -> dict:
    """Names are cut after three; an error is given in two digits."""
    said = {n: v for n, v in asdict(found).items() if v and n not in ("verdict", "repeatable", "seed")}
    for name in ("missing", "wrong", "state"):
        if name in said:
            said[name] = {"number": len(said[name]), "first": said[name][:3]}
    return said | ({"error": float(f"{found.error:.1e}")} if found.error else {})


def supported(public) -> bool:
    return bool(getattr(same(public.model)()[0], "supports_gradient_checkpointing", False))


def main(wanted: list[str]) -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    table = json.loads(TABLE.read_text()) if TABLE.exists() and wanted else {"blocks": {}, "models": {}, "routers": {}}
    table["versions"] = {
        "torch": torch.__version__, "transformers": transformers.__version__, "numpy": np.__version__,
        "python": platform.python_version(),
    }  # fmt: skip

    def measure(part: str, name: str, row: Callable[[], dict]) -> None:
        if wanted and not any(word in name for word in wanted):
            return
        table[part][name] = row()
        PART.write_text(json.dumps(table, indent=1, ensure_ascii=False) + "\n")
        print(part, name, table[part][name].get("verdicts", ""), flush=True)

    for name, make in ZOO.items():
        measure("blocks", name, functools.partial(block_row, make))
    for name, public in MODELS.items():
        if supported(public):
            measure("models", name, functools.partial(model_row, public))
    for family in routers.ROUTED:
        measure("routers", family, lambda f=family: {k: asdict(v) for k, v in routers.measure(f).items()})
    PART.replace(TABLE)


if __name__ == "__main__":
    main(sys.argv[1:])
