"""The dozen faults of the field guide, by root cause; each with its repair. See `steps` for how one is run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import nn

from recompute_lab.specimens import cut_off, other_kernel, other_world, own_arguments, saved_protocol, swapped_weights
from recompute_lab.specimens.draws import MaskedLayers, NumpyDefault, TorchDefault
from recompute_lab.specimens.kept_things import Cached, CachedAt
from recompute_lab.specimens.steps import NON_REENTRANT, Model, Run, power

ROOT_CAUSES: dict[int, str] = {
    1: "the segment is cut off from the graph around it",
    2: "the forward writes state",
    3: "the recomputation sees another world",
    4: "the forward changes its own arguments",
    5: "randomness that torch does not replay",
    6: "the weights are others",
    7: "another kernel, route or rounding",
    8: "the agreement on saved tensors is broken",
}


@dataclass(frozen=True)
class Fault:
    """`faulty()` and `repaired()` make models with equal weights, whose `step` is compared. `cause` is a number of
    ROOT_CAUSES; `repair` says in a few words what was done.
    """

    name: str
    cause: int
    faulty: Callable[[], Model]
    repaired: Callable[[], Model]
    repair: str


class Around(Model):
    """A model around a segment of an earlier lesson."""

    def __init__(self, make: Callable[[], nn.Module], *args):
        self._make, self._args = make, args
        super().__init__()

    def build(self) -> None:
        self.stem, self.segment = nn.Linear(16, 16), self._make()

    def step(self, run: Run = NON_REENTRANT):
        loss = power(run(self.segment, self.stem(self.rows), *self._args))
        loss.backward()
        return loss.detach()


GUIDE: tuple[Fault, ...] = (
    Fault("frozen embedding", 1, cut_off.FrozenEmbedding, cut_off.FrozenEmbeddingJoined, "x.requires_grad_()"),
    Fault("features in a list", 1, cut_off.DenselyConnected, cut_off.DenselyConnectedUnpacked, "tensors as arguments"),
    Fault("adapter switched", 3, other_world.TwoTasks, other_world.TwoTasksTold, "the task is an argument"),
    Fault("closure in a loop", 3, other_world.InALoop, other_world.InALoopBound, "layer=layer"),
    Fault("popped from a dict", 4, own_arguments.Popped, own_arguments.PoppedNoMore, "get, not pop"),
    Fault("argument in place", 4, own_arguments.InPlace, own_arguments.InPlaceNoMore, "x + y, not x += y"),
    Fault("weight gathered", 6, swapped_weights.Gathered, swapped_weights.GatheredInside, "gather in the segment"),
    Fault("critic steps first", 6, swapped_weights.Adversarial, swapped_weights.AdversarialInTurn, "backward first"),
    Fault("kernel chosen outside", 7, other_kernel.KernelChosen, other_kernel.KernelChosenInside, "choose inside"),
    Fault("unpacked twice", 8, saved_protocol.UnpackedTwice, saved_protocol.UnpackedOnce, "unpack once"),
    Fault("early stop swallowed", 8, saved_protocol.Swallowed, saved_protocol.SwallowedNoMore, "except what you mean"),
    Fault("tensor on ctx", 8, saved_protocol.OnCtx, saved_protocol.Saved, "save_for_backward"),
)


def _cached() -> Model:
    return Around(Cached)


def _cached_at() -> Model:
    return Around(CachedAt, 0)


def _numpys() -> Model:
    return Around(lambda: MaskedLayers(NumpyDefault()))


def _torchs() -> Model:
    return Around(lambda: MaskedLayers(TorchDefault()))


# The two root causes that had a lesson of their own, one specimen of each. Other noise is other noise: the repaired one
# of the second is compared with its own plain run.
EARLIER: tuple[Fault, ...] = (
    Fault("cache that grows", 2, _cached, _cached_at, "the caller says where (lesson 05)"),
    Fault("masks from NumPy", 5, _numpys, _torchs, "draw from torch's stream (lesson 04)"),
)


def fault(name: str) -> Fault:
    """The one of that name. Raises ValueError, naming all, where there is none."""
    everything = (*GUIDE, *EARLIER)
    for one in everything:
        if one.name == name:
            return one
    raise ValueError(f"a fault is one of {', '.join(one.name for one in everything)}; got {name!r}")
