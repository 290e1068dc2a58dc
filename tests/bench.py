"""What the instruments cost, as ratios measured side by side in one run: `make bench`.

Nothing here is asserted: a busy machine makes any time wrong, and leaves the ratios of medians roughly right.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
import transformers
from torch import nn
from torch.utils.checkpoint import CheckpointError, checkpoint

from recompute_lab import NON_REENTRANT, PLAIN, REENTRANT, Witness, align, audit, record
from recompute_lab.instruments.ledger import Recorder
from recompute_lab.instruments.memory import footprint
from recompute_lab.instruments.nondeterminism import Nudge
from recompute_lab.instruments.own_checkpoint import OWN
from recompute_lab.instruments.timing import seconds
from recompute_lab.specimens.norm_cap import GuardedNormCap, RepairedNormCap
from recompute_lab.specimens.trunk import Trunk


def side_by_side(steps: dict[str, Callable], rounds: int = 15) -> dict[str, float]:
    """Median seconds of each step, by name."""
    return dict(zip(steps, seconds(*steps.values(), rounds=rounds), strict=True))


def show(title: str, times: dict[str, float]) -> None:
    print(f"\n{title}")
    base = next(iter(times.values()))
    for name, took in times.items():
        print(f"  {name:<44} {took / base:6.2f} x   ({took * 1e3:.1f} ms)")


def strategies() -> None:
    guarded, repaired = (Trunk(cap, limit=100.0) for cap in (GuardedNormCap, RepairedNormCap))
    stream = torch.randn(32, 16, 32, requires_grad=True)

    def step(segment, strategy) -> Callable:
        return lambda: strategy(segment, stream).sum().backward()

    show(
        "One step of the trunk (forward and backward)",
        side_by_side(
            {
                "plain": step(guarded, PLAIN),
                "plain, repaired cap": step(repaired, PLAIN),
                "reentrant": step(guarded, REENTRANT),
                "non-reentrant": step(guarded, NON_REENTRANT),
                "non-reentrant, both passes recorded": lambda: step(Recorder(guarded), NON_REENTRANT)(),
            }
        ),
    )


def own_checkpoint() -> None:
    class Stack(nn.Module):
        def __init__(self, width: int):
            super().__init__()
            self.segments = nn.ModuleList(
                nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Dropout(0.1), nn.Linear(width, width))
                for _ in range(32)
            )

        def forward(self, x, strategy):
            for segment in self.segments:
                x = strategy(segment, x)
            return x

    for width in (64, 256):
        stack, x = Stack(width), torch.randn(2 * width, width, requires_grad=True)
        strategies = {"torch's non-reentrant": NON_REENTRANT, "the course's own": OWN, "plain": PLAIN}
        steps = {name: lambda s=s, m=stack, x=x: m(x, s).sum().backward() for name, s in strategies.items()}
        show(f"A step of 32 checkpointed segments, width {width}", side_by_side(steps))
        peaks = {name: footprint(stack, x, s).peak for name, s in strategies.items()}
        torchs = next(iter(peaks.values()))
        ratios = ", ".join(f"{name} {peak / torchs:.2f}" for name, peak in peaks.items())
        print(f"  peak of the memory held, against torch's: {ratios}")


def ledgers() -> None:
    x, one = torch.ones(1, requires_grad=True), torch.ones(1)

    def chain(x, length):
        for _ in range(length):
            x = x * one
        return x

    show(
        "Recording a chain of multiplications",
        side_by_side({f"{n:,} saved tensors": lambda n=n: record(chain, x, n) for n in (10_000, 100_000)}, rounds=3),
    )
    long = record(chain, x, 100_000).rows
    show(
        "Aligning two ledgers that differ in 16 rows",
        side_by_side({f"{n:,} rows": lambda n=n: align(long[:n], long[16:n]) for n in (10_000, 100_000)}, rounds=3),
    )


def witness() -> None:
    def step(trunk, x, **options) -> Callable:
        return lambda: checkpoint(trunk, x, use_reentrant=False, **options).sum().backward()

    for width in (16, 32, 64, 128):
        trunk, x = Trunk(limit=100.0, blocks=7, width=width), torch.randn(8, 16, width, requires_grad=True)
        steps = {
            "checkpointed": step(trunk, x),
            "watched by a witness": step(trunk, x, context_fn=Witness().context_fn),
            "debug=True": step(trunk, x, debug=True),
        }
        show(f"A checkpointed step of seven blocks, width {width}", side_by_side(steps))

    x = torch.randn(8, 16, 32, requires_grad=True)
    steps = {}
    for blocks in (7, 70):
        trunk = Trunk(limit=100.0, blocks=blocks)
        steps[f"{blocks} blocks"] = step(trunk, x)
        steps[f"{blocks} blocks, watched"] = step(trunk, x, context_fn=Witness().context_fn)
    show("A segment that is ten times as long", side_by_side(steps, rounds=7))

    nudge = Nudge({1: 4, 2: -4})
    segment, x = nudge.counted(Trunk(limit=0.2, noise=nudge, blocks=7)), torch.randn(2, 16, 32, requires_grad=True)
    told = {}
    for name, options in {"debug=True": {"debug": True}, "the witness": {"context_fn": Witness().context_fn}}.items():
        nudge.pass_number = 0
        try:
            step(segment, x, **options)()
        except CheckpointError as error:
            told[name] = "\n".join(getattr(error, "__notes__", None) or [str(error)])
    lines = ", ".join(f"{name} {len(text.splitlines()):,}" for name, text in told.items())
    print(f"\nLines printed for one flip in seven blocks: {lines}")


def imports() -> None:
    code = [sys.executable, "-X", "importtime", "-c", "import torch; from recompute_lab import *"]
    report = subprocess.run(code, capture_output=True, text=True, check=True).stderr
    lines = re.findall(r"import time:\s+(\d+) \|\s+(\d+) \| (\s*)(\S+)", report)
    torch_time = next(int(total) for _, total, indent, name in lines if name == "torch" and not indent)
    own = sum(int(alone) for alone, _, _, name in lines if name.startswith("recompute_lab"))
    print(f"\nImporting: the package's own modules take {own / torch_time:.2%} of what torch takes")


def audits() -> None:
    """The audit of a large package against parsing it alone, and of a half of it against the whole."""
    root = Path(transformers.__file__).parent
    files = sorted(root.rglob("*.py"))
    texts = [file.read_text(encoding="utf-8") for file in files]

    def parse() -> None:
        for text in texts:
            ast.parse(text)

    times = {}
    for name, step in {
        "only parsing, one core": parse,
        "auditing, one core": lambda: audit(*files, processes=1),
        "auditing, all cores": lambda: audit(*files),
        "auditing every second file, one core": lambda: audit(*files[::2], processes=1),
    }.items():
        began = time.perf_counter()
        step()
        times[name] = time.perf_counter() - began
    lines, half = (sum(text.count("\n") for text in some) for some in (texts, texts[::2]))
    what = f"transformers {transformers.__version__}, {lines:,} lines"
    show(f"Auditing {what} ({half / lines:.2f} of them in a half)", times)


if __name__ == "__main__":
    torch.set_num_threads(1)
    print("Ratios to the first line of each block; medians of steps that take turns. One thread.")
    strategies()
    own_checkpoint()
    ledgers()
    witness()
    imports()
    audits()
