"""The family of BatchNorm's fault: forwards that do something other than return a value. Each with its repair.

A loop runs a specimen so: in each step it calls `begin_step()`, then `checkpoint(module, x, *module.arguments(...))`
once or more, makes a loss of `module.terms(outputs)`, and goes backward. Segments are [N, 16] -> [N, 16], float32.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from torch import nn

from recompute_lab.repairs.recomputation import announced
from recompute_lab.repairs.replay import state_replayed
from recompute_lab.specimens import counters, kept_things, running_state


def _announced(module: nn.Module) -> Callable:
    return announced


@dataclass(frozen=True)
class Specimen:
    """A fault and its repair.

    `faulty()` and `repaired()` make modules with equal weights. `repair` says what was done, and `context(module)` is
    the `context_fn` that checkpointing the repaired one takes; None where it takes none.
    """

    name: str
    faulty: Callable[[], nn.Module]
    repaired: Callable[[], nn.Module]
    repair: str
    context: Callable[[nn.Module], Callable] | None = None


GUARD, REPLAY, PLACE, NO_CACHE, RETURN, NONE = (
    "the recomputation does not write",
    "the recomputation starts from the entry's state",
    "the caller says where to write",
    "nothing is kept",
    "the term is returned",
    "nothing to repair",
)


def _guarded(name: str, faulty: Callable, repaired: Callable) -> Specimen:
    return Specimen(name, faulty, repaired, GUARD, _announced)


def _replayed(name: str, faulty: Callable) -> Specimen:
    return Specimen(name, faulty, faulty, REPLAY, state_replayed)


FAMILY: tuple[Specimen, ...] = (
    _guarded("counter, logged", counters.Counted, counters.CountedOnce),
    _guarded("counter, read for a warm-up", counters.WarmedUp, counters.WarmedUpOnce),
    Specimen("cache that grows", kept_things.Cached, kept_things.CachedAt, PLACE),
    Specimen("table built on first call", kept_things.Rotary, kept_things.RotaryBuilt, NO_CACHE),
    _replayed("queue of features", running_state.Queued),
    _guarded("average, written only", running_state.ScaleLogged, running_state.ScaleLoggedOnce),
    _replayed("average, read then written", running_state.ScaleRead),
    _guarded("average, written then read", running_state.ScaleWritten, running_state.ScaleWrittenOnce),
    _guarded("observer of a range", running_state.FakeQuantised, running_state.FakeQuantisedOnce),
    _replayed("spectral norm", running_state.SpectrallyNormed),
    Specimen("collected loss", kept_things.Routed, kept_things.RoutedReturned, RETURN),
    _guarded("hook that logs", kept_things.logged, partial(kept_things.logged, once=True)),
    _guarded("hook that centres", kept_things.centred, partial(kept_things.centred, once=True)),
    Specimen("sample's own statistic", kept_things.Normed, kept_things.Normed, NONE),
    Specimen("last value, overwritten", kept_things.NormKept, kept_things.NormKept, NONE),
)


def specimen(name: str) -> Specimen:
    """The one of that name. Raises ValueError, naming all, where there is none."""
    for one in FAMILY:
        if one.name == name:
            return one
    raise ValueError(f"a specimen is one of {', '.join(one.name for one in FAMILY)}; got {name!r}")
