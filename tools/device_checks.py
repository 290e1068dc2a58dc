"""What a GPU has to show, each as a small check of any device: `check(device) -> Found`.

What a check takes besides its device is what a test plants a fault in. None of them raises for what it finds; a device
that cannot compute raises torch's own error.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import nn

from recompute_lab import (
    NON_REENTRANT,
    REENTRANT,
    Mismatch,
    align,
    divergence,
    examine,
    passes,
    run_twice,
    same_bits,
    unmatched,
    writes,
)
from recompute_lab.instruments.determinism import FIXED, WORKSPACE, switched
from recompute_lab.instruments.memory import footprint
from recompute_lab.instruments.nondeterminism import Atomics, Nudge, disagreements
from recompute_lab.instruments.own_checkpoint import OwnCheckpoint
from recompute_lab.specimens.counters import WarmedUp
from recompute_lab.specimens.norm_cap import GuardedNormCap, RepairedNormCap
from recompute_lab.specimens.training import DigitRun
from recompute_lab.specimens.trunk import Trunk

BOTH = (NON_REENTRANT, REENTRANT)
NUDGE = {1: +4, 2: -4}  # ulps: up in the forward, down in its recomputation, as in lesson 01


@dataclass(frozen=True)
class Found:
    """Is it as the lessons say; and what was seen, in a line."""

    right: bool
    told: str


def staged(cap: Callable, device: torch.device, **more) -> DigitRun:
    """Lesson 01's run, its noise staged."""
    nudge = Nudge(NUDGE)

    def checkpointed(trunk, stream):
        nudge.rewind()
        return NON_REENTRANT(nudge.counted(trunk), stream)

    return DigitRun(cap, noise=nudge, run_trunk=checkpointed, device=device, **more)


# --- Lesson 01's crash and its repair


def crash(device: torch.device, cap: Callable = GuardedNormCap) -> Found:
    """A run that dies: 162 tensors saved, then 161; and the ledgers of its fatal step."""
    run = staged(cap, device)
    error = run.train(60)
    if error is None:
        return Found(False, "60 steps without an error, where the run should die")
    run.load(run.states[-1])
    stream, nudge = run.trunk_input(), run.noise
    nudge.rewind()
    both = passes(nudge.counted(run.trunk), stream)
    odd = [row.operator for row, _ in unmatched(align(both.forward, both.recomputation)) if row]
    capped_before = sum(step.capped > 0 for step in run.history[:-1])
    right = str(Mismatch.of(error)) == "162 tensors saved in forward, 161 in recomputation"
    right &= str(both.mismatch) == str(Mismatch.of(error)) and odd == ["mul"] and capped_before == 0
    told = f"{Mismatch.of(error)} (ledgers: {both.mismatch}; without a partner: {', '.join(odd)})"
    return Found(right, told)


def repair(device: torch.device, cap: Callable = RepairedNormCap) -> Found:
    """The repaired cap: outputs and gradients equal in every bit, one count for all limits, no error under noise."""
    run = staged(GuardedNormCap, device, keep=1)
    run.train(12)
    stream, results = run.trunk_input().detach(), []
    counts = set()
    for kind, limit in ((GuardedNormCap, 0.5), (cap, 0.5), (cap, 100.0)):
        trunk = Trunk(kind, limit).to(device)
        trunk.load_state_dict(run.trunk.state_dict())
        output = trunk(stream)
        output.square().sum().backward()
        results.append([output, *(parameter.grad for parameter in trunk.parameters())])
        if kind is cap:
            counts.add(len(passes(trunk, stream.clone().requires_grad_()).forward))
    equal = all(map(same_bits, results[0], results[1]))
    mended = staged(cap, device, keep=0)
    error = mended.train(30)
    told = f"equal bit for bit: {equal}; saved, capped or not: {sorted(counts)}; 30 steps: {error or 'no error'}"
    return Found(equal and len(counts) == 1 and error is None, told)


# --- Noise: additions in no fixed order


def atomics(device: torch.device, noise: Callable | None = None) -> Found:
    """Real additions differ from call to call, and do not where torch's deterministic algorithms are on."""
    tensor = torch.randn(1 << 17, generator=torch.Generator().manual_seed(0)).to(device)
    noise, counts = noise or Atomics(), []
    for on in (False, True):
        with switched(on):
            counts.append(disagreements(lambda: noise(tensor), calls=20))
    told = f"{counts[0]} of 20 calls differ from the first; under deterministic algorithms {counts[1]}"
    return Found(counts[0] > 0 and counts[1] == 0, told)


def real_crash(device: torch.device, noise: Callable | None = None, tries: int = 100) -> Found:
    """The first step with a capped vector, repeated under real noise until it dies; and with deterministic algorithms.

    That no try of 100 dies is possible, but then this device does not show the lessons' race.
    """
    run = staged(RepairedNormCap, device, keep=1)
    while not (run.history and run.history[-1].capped) and len(run.history) < 60:
        run.train(1)
    if not run.history[-1].capped:
        return Found(False, "no vector is capped in 60 steps, where some should be")
    state, run = run.states[-1], DigitRun(noise=noise or Atomics(), run_trunk=NON_REENTRANT, device=device, keep=0)

    def endings(number: int, until_it_dies: bool) -> list[str]:
        found = []
        while len(found) < number and not (until_it_dies and any(found)):
            run.load(state)
            error = run.train(1)
            found.append("" if error is None else Mismatch.of(error).short)
        return found

    with switched(False):
        free = endings(tries, until_it_dies=True)
    with switched(True):
        fixed = endings(20, until_it_dies=False)
    died = f"died at try {len(free)} ({free[-1]})" if free[-1] else f"lived through {tries} tries"
    told = f"one step, real noise: {died}; deterministic: {sum(map(bool, fixed))} of 20 died"
    return Found(bool(free[-1]) and not any(fixed), told)


# --- cuBLAS under the deterministic switch

_PRODUCTS = """
import json, os, sys, torch
device, late = torch.device(sys.argv[1]), sys.argv[2] == "late"
rows = torch.ones(2, 4, 4, device=device)
if late:
    torch.mm(rows[0], rows[1])
    os.environ["{WORKSPACE}"] = ":4096:8"
torch.use_deterministic_algorithms(True)
told = dict()
for name, product in dict(
    mm=lambda: torch.mm(rows[0], rows[1]), mv=lambda: torch.mv(rows[0], rows[1, 0]), bmm=lambda: torch.bmm(rows, rows)
).items():
    try:
        product().sum().item()
        told[name] = "passes"
    except RuntimeError as error:
        told[name] = "raises" if "{WORKSPACE}" in str(error) else str(error).splitlines()[0]
print(json.dumps(told))
""".replace("{WORKSPACE}", WORKSPACE)


def products(device: torch.device, setting: str = FIXED[0]) -> Found:
    """torch.mm, mv and bmm under the switch: they raise without the workspace variable, and pass with it; one that is
    set after the first product comes too late.

    Three processes, since torch reads the variable once. `setting` is what the second is given.
    """
    found = {}
    for name, value, when in (("without", None, "now"), ("with", setting, "now"), ("too late", None, "late")):
        environment = {key: said for key, said in os.environ.items() if key != WORKSPACE}
        environment |= {} if value is None else {WORKSPACE: value}
        command = [sys.executable, "-c", _PRODUCTS, str(device), when]
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
        said = json.loads(done.stdout) if done.returncode == 0 else {"": done.stderr.strip().splitlines()[-1]}
        found[name] = sorted(set(said.values()))
    told = "; ".join(f"{name} {WORKSPACE}: {', '.join(said)}" for name, said in list(found.items())[:2])
    told += f"; set after the first product: {', '.join(found['too late'])}"
    return Found(found == {"without": ["raises"], "with": ["passes"], "too late": ["raises"]}, told)


# --- The device's generators


class Dropping(nn.Module):
    """A linear layer and a mask, [N, 16] -> [N, 16]. `draw(shape)` gives uniform numbers on the layer's device."""

    def __init__(self, draw: Callable[[torch.Size], torch.Tensor]):
        super().__init__()
        self.linear, self.draw = nn.Linear(16, 16), draw

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept = self.draw(x.shape) < 0.5
        return torch.tanh(self.linear(x) * kept.to(x.device) * 2)


def _rows(device: torch.device) -> torch.Tensor:
    return torch.randn(32, 16, generator=torch.Generator().manual_seed(0)).to(device).requires_grad_()


def _replayed(segment: Callable, x: torch.Tensor, preserve: bool) -> list[bool]:
    """Under both implementations: are the gradients the plain run's, bit for bit?"""
    return [divergence(segment, x, strategy=replace(way, preserve_rng_state=preserve)).equal for way in BOTH]


def dropout(device: torch.device, layer: nn.Module | None = None) -> Found:
    """nn.Dropout on the device: replayed by default under both implementations, lost with preserve_rng_state=False."""
    segment, x = nn.Sequential(nn.Linear(16, 64), layer or nn.Dropout(0.5), nn.Tanh()).to(device), _rows(device)
    kept, lost = (_replayed(segment, x, preserve) for preserve in (True, False))
    told = f"preserve_rng_state True: {_words(kept)}; False: {_words(lost)}"
    return Found(kept == [True, True] and lost == [False, False], told)


def private_generator(device: torch.device, generator: torch.Generator | None = None) -> Found:
    """A torch.Generator of the device, the segment's own: nobody replays it but a checkpoint that is told."""
    mine = torch.Generator(device=device).manual_seed(0)
    drawn = mine if generator is None else generator
    segment = Dropping(lambda shape: torch.rand(shape, device=drawn.device, generator=drawn)).to(device)
    x = _rows(device)
    torchs = _replayed(segment, x, preserve=True)
    told_of_it = divergence(segment, x, strategy=OwnCheckpoint(generators=(mine,))).equal
    told = f"torch's checkpoint: {_words(torchs)}; one that is told of it: {_words([told_of_it])}"
    return Found(torchs == [False, False] and told_of_it, told)


def foreign_generator(device: torch.device) -> Found:
    """The default generator of a device on which no argument lives: a mask drawn there, of arguments on the CPU."""
    segment, x = Dropping(lambda shape: torch.rand(shape, device=device)), _rows(torch.device("cpu"))
    found = _replayed(segment, x, preserve=True)
    return Found(found == [False, False], f"arguments on the CPU, mask drawn on {device}: {_words(found)}")


def _words(replayed: list[bool]) -> str:
    if len(set(replayed)) == 1:
        return "replayed" if replayed[0] else "lost"
    return " and ".join(f"{way.name} {'replayed' if r else 'lost'}" for way, r in zip(BOTH, replayed, strict=True))


# --- The instruments


def instruments(device: torch.device, faulty: Callable[[], nn.Module] = WarmedUp) -> Found:
    """The witness names the counter, `writes` lists it, `footprint` sees that checkpointing keeps less."""
    x = _rows(device)
    report = examine(faulty().to(device), x)
    named = [cause.name for cause in report.causes]
    listed = "calls" in str(writes(faulty().to(device), x))
    layers = nn.Sequential(*(nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 16)) for _ in range(4)))
    layers = layers.to(device)
    less = footprint(lambda x: NON_REENTRANT(layers, x), x).kept < footprint(layers, x).kept
    right = report.verdict == "silent" and any("calls" in name for name in named) and listed and less
    told = f"witness: {report.verdict}, {', '.join(named) or 'no cause'}; writes: {listed}; memory: {less}"
    return Found(right, told)


class Drawing:
    """An evaluation on rows that are drawn anew: by the device's default generator, or by one of its own."""

    def __init__(self, generator: torch.Generator | None = None):
        self.generator = generator

    def __call__(self, model: nn.Module, rows: torch.Tensor) -> dict:
        drawn = torch.randint(0, len(rows), (16,), device=rows.device, generator=self.generator)
        with torch.no_grad():
            return {"mean": model(rows[drawn]).mean().item()}


def evaluation(device: torch.device, drawing: Callable = Drawing) -> Found:
    """`run_twice` puts the device's default generator back before each run, and finds one that nobody puts back."""
    rows, model = _rows(device).detach(), nn.Linear(16, 4).to(device)
    by_default = run_twice(drawing(), model, rows)
    by_its_own = run_twice(drawing(torch.Generator(device=device).manual_seed(0)), model, rows)
    named = any("generator" in str(reason) and reason.proven for reason in by_its_own.reasons)
    words = {True: "agrees", False: "disagrees"}
    told = f"default generator: {words[by_default.agrees]}; one of its own: {words[by_its_own.agrees]}, proven: {named}"
    return Found(by_default.agrees and not by_its_own.agrees and named, told)


@contextmanager
def streams_kept(device: torch.device):
    """The checks draw; afterwards the default generators stand where they stood."""
    with torch.random.fork_rng(devices=[device] if device.type != "cpu" else [], device_type=device.type):
        torch.manual_seed(0)
        yield


ANYWHERE: dict[str, Callable[[torch.device], Found]] = {
    "162, then 161": crash,
    "the repair": repair,
    "device dropout": dropout,
    "a private generator": private_generator,
    "witness, writes, memory": instruments,
    "run_twice": evaluation,
}
# What only another device than the CPU has, and what only CUDA has.
AWAY: dict[str, Callable[[torch.device], Found]] = {"a foreign generator": foreign_generator}
CUDA: dict[str, Callable[[torch.device], Found]] = {
    "real atomics": atomics,
    "a real crash": real_crash,
    "cuBLAS products": products,
}
