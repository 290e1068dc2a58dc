"""The ways to run a segment, and torch's own error read into numbers."""

from __future__ import annotations

import functools
import re
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

import torch
from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop

from recompute_lab.instruments.interrupts import uninterrupted
from recompute_lab.instruments.isolation import isolated, tensors_in
from recompute_lab.instruments.ledger import Ledger, Recorder

# The first checkpoint, or optimizer, would import it. Half imported, it fails until the process ends.
with uninterrupted():
    import torch._dynamo  # noqa: F401


@dataclass(frozen=True)
class Strategy:
    """One way to run a segment: `strategy(segment, *args, **kwargs)` returns the segment's output.

    `use_reentrant` is None for a plain call. The rest is torch's own. `early_stop` and `determinism_check` ("default"
    compares shape, dtype and device of each recomputed tensor, "none" nothing) mean something to the non-reentrant
    implementation only, and the reentrant one takes them without a word. `preserve_rng_state` says whether the
    recomputation replays torch's random streams; without it, it draws on from where they stand. `context_fn()` gives
    two context managers, one for the forward and one for the recomputation; the call raises ValueError where it is
    given to the reentrant implementation.
    """

    name: str
    use_reentrant: bool | None
    early_stop: bool = True
    determinism_check: str = "default"
    preserve_rng_state: bool = True
    context_fn: Callable | None = None

    def __call__(self, segment: Callable, *args, **kwargs):
        if self.use_reentrant is None:
            return segment(*args, **kwargs)
        if kwargs:  # the reentrant implementation takes none, and the other has some of its own ("debug", say)
            segment = functools.partial(segment, **kwargs)
        # A context manager in every version of torch; newer ones have a keyword as well.
        try:
            with set_checkpoint_early_stop(self.early_stop):
                return checkpoint(
                    segment,
                    *args,
                    use_reentrant=self.use_reentrant,
                    determinism_check=self.determinism_check,
                    preserve_rng_state=self.preserve_rng_state,
                    **({"context_fn": self.context_fn} if self.context_fn else {}),
                )
        except BaseException as error:  # IPython keeps the last one, an interrupt, too
            released(error)
            raise


PLAIN = Strategy("plain", use_reentrant=None)
REENTRANT = Strategy("reentrant", use_reentrant=True)
NON_REENTRANT = Strategy("non-reentrant", use_reentrant=False)
NO_EARLY_STOP = Strategy("non-reentrant, no early stop", use_reentrant=False, early_stop=False)
STRATEGIES = (PLAIN, REENTRANT, NON_REENTRANT, NO_EARLY_STOP)


def checked(strategy) -> Strategy:
    """The strategy itself. Raises TypeError, naming the choices, for anything else."""
    if not isinstance(strategy, Strategy):
        raise TypeError(f"a strategy is one of PLAIN, REENTRANT, NON_REENTRANT, NO_EARLY_STOP; got {strategy!r}")
    return strategy


@dataclass(frozen=True)
class Mismatch:
    """What a `CheckpointError` says, without its prose, which differs between versions of torch.

    `kind` is "count" (fewer tensors in the recomputation), "more" (more of them; seen only without early stop),
    "metadata" (a shape, dtype or device differs), or "other". `saved` and `recomputed` are counts, where told.
    """

    kind: str
    saved: int | None = None
    recomputed: int | None = None

    @classmethod
    def of(cls, error: BaseException) -> Mismatch:
        text = str(error)
        counts = re.search(r"saved during forward: (\d+)\D+recomputation: (\d+)", text)
        if counts:
            return cls("count", int(counts[1]), int(counts[2]))
        if "different metadata" in text:
            return cls("metadata")
        return cls("more" if "trying to save more tensors" in text else "other")

    @property
    def short(self) -> str:
        """A few words, for a title: "162 saved, then 161", or "different metadata"."""
        if self.kind == "count":
            return f"{self.saved} saved, then {self.recomputed}"
        return "different metadata" if self.kind == "metadata" else str(self)

    def __str__(self) -> str:
        if self.kind == "count":
            return f"{self.saved} tensors saved in forward, {self.recomputed} in recomputation"
        return {"metadata": "a recomputed tensor has other metadata", "more": "more tensors in recomputation"}.get(
            self.kind, "another error"
        )


def released(error: BaseException) -> BaseException:
    """The same error, fit to be kept: it keeps no checkpoint open. Harmless wherever it came from.

    Older versions of torch leave a failed forward's hooks on for as long as their frame in its traceback lives
    (`torch_version.failed_forward_lingers`): all that is saved meanwhile counts as the failed segment's. That frame is
    cleared; the traceback's lines, and the variables of everybody else's frames, stay.
    """
    chain = [error]
    while (earlier := chain[-1].__context__) is not None and earlier not in chain:
        chain.append(earlier)
    for frame, _ in (entry for link in chain for entry in traceback.walk_tb(link.__traceback__)):
        if frame.f_code.co_filename == torch.utils.checkpoint.__file__:
            with suppress(RuntimeError):  # one that still runs
                frame.clear()
    return error


@dataclass
class Passes:
    """The ledgers of one checkpointed forward and backward, and the error, if the second pass raised one."""

    ledgers: list[Ledger] = field(default_factory=list)
    error: BaseException | None = None

    @property
    def forward(self) -> Ledger:
        return self.ledgers[0]

    @property
    def recomputation(self) -> Ledger | None:
        """The second pass; None where the segment was not run again."""
        return self.ledgers[1] if len(self.ledgers) > 1 else None

    @property
    def mismatch(self) -> Mismatch | None:
        return None if self.error is None else Mismatch.of(self.error)


def passes(segment: Callable, *args, strategy: Strategy = NON_REENTRANT, **kwargs) -> Passes:
    """Run `segment` forward and backward under a strategy and keep each pass's ledger.

    What the segment raises in forward passes through. What is raised in backward is kept as `error`, since it is the
    answer. Raises ValueError where the output cannot be differentiated, and TypeError for what is no segment or no
    strategy. All state is afterwards as it was.
    """
    recorder = Recorder(segment)
    with isolated(segment, *args, **kwargs) as call:
        output = checked(strategy)(recorder, *call.args, **call.kwargs)
        loss = weighted_sum(output)
        try:
            loss.backward()
        except Exception as error:
            return Passes(recorder.passes, released(error))
    return Passes(recorder.passes)


def weighted_sum(output) -> torch.Tensor:
    """A scalar that depends on every element of every differentiable tensor in `output`, with distinct weights.

    A plain sum would give some segments (a softmax, a normalisation) the gradient zero and hide a difference.
    Raises ValueError where no tensor in `output` requires grad.
    """
    tensors = [t for t in tensors_in(output) if t.requires_grad]
    if not torch.is_grad_enabled():
        raise ValueError("nothing to differentiate: grad mode is off. Call outside torch.no_grad and inference_mode.")
    if not tensors:
        raise ValueError(
            "nothing to differentiate: no tensor in the segment's output requires grad. Give it an input or a "
            "parameter that requires grad (an input, where checkpointing is reentrant), and return what depends on it."
        )
    return sum(_weighted(torch.view_as_real(t.resolve_conj()) if t.is_complex() else t) for t in tensors)


def _weighted(tensor: torch.Tensor) -> torch.Tensor:
    tensor = tensor if tensor.layout is torch.strided else tensor.to_dense()
    weights = torch.linspace(0.5, 1.5, tensor.numel(), device=tensor.device).view(tensor.shape)
    return (tensor * weights.to(tensor.dtype)).sum()
