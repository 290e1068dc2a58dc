"""How far a strategy's gradients, buffers and side effects are from the plain run's."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from recompute_lab.instruments.checkpointing import (
    NON_REENTRANT,
    PLAIN,
    Mismatch,
    Strategy,
    checked,
    released,
    weighted_sum,
)
from recompute_lab.instruments.isolation import isolated, tensors_in
from recompute_lab.instruments.state import equal_values, same_bits

# A relative error that a few last bits can make, also after some layers, and a wrong gradient does not stay below.
ROUNDING = 1e-5


@dataclass(frozen=True)
class Row:
    """One leaf's gradient against the baseline.

    `error` is the relative error |g - b| / |b| in the Euclidean norm: 0.0 where every bit is the same, infinite where
    b is zero and g is not, or where a NaN or an infinity leaves no number. `cosine` is the cosine of the angle between
    the two, NaN where one is zero. Both are computed in float64.
    """

    name: str
    error: float
    cosine: float
    equal: bool


@dataclass
class Divergence:
    """What differs between a strategy's run of a segment and the plain run from the same state.

    `missing` and `unexpected` name the leaves that only the baseline, or only the strategy, gave a gradient. `effects`
    names tensors and attributes that the plain run changed, `changed` those that end up different under the strategy.
    `raised` is the exception of the strategy's run, whose gradients are then not compared.
    """

    strategy: str
    rows: list[Row] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)
    effects: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    output_equal: bool = True
    raised: BaseException | None = None

    @property
    def equal(self) -> bool:
        """True where gradients, outputs and state all agree with the plain run, bit for bit."""
        differs = self.missing or self.unexpected or self.changed or self.raised or not self.output_equal
        return not differs and all(row.equal for row in self.rows)

    @property
    def worst(self) -> float:
        """The largest relative error; 0.0 where nothing has a gradient."""
        return max((row.error for row in self.rows), default=0.0)

    @property
    def damage(self) -> float:
        """The largest relative error, where a missing gradient counts as zero: as an error of 1 at least."""
        return max(self.worst, 1.0) if self.missing else self.worst

    @property
    def outcome(self) -> str:
        """What came of the gradients, in a word.

        The kind of `Mismatch` where checkpointing raised ("count", "more", "metadata"), "other" for any other error.
        Without one, "fine" where the gradients are the plain run's up to rounding, and "silent" where they are not.
        """
        if self.raised is not None:
            return Mismatch.of(self.raised).kind
        return "silent" if self.missing or self.unexpected or self.worst > ROUNDING else "fine"

    def __str__(self) -> str:
        if self.raised is not None:
            return f"{self.strategy}: raised {type(self.raised).__name__} ({Mismatch.of(self.raised)})"
        if self.equal:
            return f"{self.strategy}: equal to the plain run, bit for bit"
        same = all(row.equal for row in self.rows)
        found = "gradients as in the plain run" if same else f"largest relative gradient error {self.worst:.1e}"
        lines = [f"{self.strategy}: {found}"]
        for label in ("missing", "unexpected", "changed"):
            if names := getattr(self, label):
                lines.append(f"  {label}: {', '.join(names[:6])}{' ...' if len(names) > 6 else ''}")
        return "\n".join(lines)


def divergence(
    segment: Callable, *args, strategy: Strategy = NON_REENTRANT, loss: Callable = weighted_sum, **kwargs
) -> Divergence:
    """Run `segment` plainly and under `strategy`, each from the state it has now, and compare.

    `loss` turns the output into a scalar; by default every element of every output counts, with distinct weights. What
    the plain run raises passes through; what the strategy's run raises is kept in `raised`. Raises ValueError where the
    output cannot be differentiated, `loss` does not give one number, or a tensor has no values (the meta device), and
    TypeError for what is no segment or no strategy. All state the segment can reach is afterwards as it was.
    """
    checked(strategy)
    plain = run(PLAIN, segment, args, kwargs, loss)
    try:
        other = run(strategy, segment, args, kwargs, loss)
    except Exception as error:
        return Divergence(strategy.name, effects=list(plain.changed), raised=released(error))
    return compared(plain, other, strategy.name)


@dataclass
class Run:
    """What came of one run: copies of the outputs' tensors, the gradients by leaf, and the state that it changed."""

    output: list[torch.Tensor]
    grads: dict[str, torch.Tensor]
    changed: dict[str, object]


def run(
    strategy: Strategy, segment: Callable, args: tuple, kwargs: dict, loss: Callable, between: Callable | None = None
) -> Run:
    """One forward and backward under a strategy, from the state as it is, which is put back.

    `between(segment, args, output)` is called after the forward, before its backward.
    """
    with isolated(segment, *args, **kwargs) as call:
        leaves = {**call.before.parameters(), **call.leaves}
        output = strategy(segment, *call.args, **call.kwargs)
        if between is not None:
            between(segment, call.args, output)
        tensors = tensors_in(output)
        # Reentrant checkpointing cuts off what no argument made differentiable, and any tensor in a nested output.
        if not strategy.use_reentrant or any(t.requires_grad for t in tensors):
            value = loss(output)
            tensors = tensors or [value]
            if not isinstance(value, torch.Tensor) or value.numel() != 1:
                raise ValueError("`loss` must return one number")
            if value.requires_grad:
                value.backward()
            elif not strategy.use_reentrant:
                raise ValueError("`loss` must return a number that requires grad")
        grads = {name: leaf.grad.detach().clone() for name, leaf in leaves.items() if leaf.grad is not None}
        output = [t.detach().clone() for t in tensors]
        return Run(output, grads, call.before.values_now(call.before.changes()))


def compared(plain: Run, other: Run, name: str) -> Divergence:
    """How far `other`, a run under the strategy of that name, is from the plain run."""
    result = Divergence(name, effects=list(plain.changed))
    result.changed = [
        name
        for name in sorted({*plain.changed, *other.changed})
        if not (name in plain.changed and name in other.changed)
        or not equal_values(plain.changed[name], other.changed[name])
    ]
    result.output_equal = equal_values(plain.output, other.output)
    result.missing = [name for name in plain.grads if name not in other.grads]
    result.unexpected = [name for name in other.grads if name not in plain.grads]
    result.rows = [_compare(name, g, other.grads[name]) for name, g in plain.grads.items() if name in other.grads]
    return result


def _compare(name: str, baseline: torch.Tensor, gradient: torch.Tensor) -> Row:
    if baseline.is_meta or gradient.is_meta:
        raise ValueError(f"{name} is on the meta device, where tensors have no values to compare")
    if baseline.shape != gradient.shape:
        return Row(name, float("inf"), float("nan"), False)
    b, g = (t if t.layout is torch.strided else t.to_dense() for t in (baseline, gradient))
    b, g = (t.reshape(-1).to(torch.complex128 if t.is_complex() else torch.float64) for t in (b, g))
    norm_b, norm_g, gap = (float(t.norm()) for t in (b, g, g - b))
    cosine = float((b.conj() * g).sum().real) / (norm_b * norm_g) if norm_b and norm_g else float("nan")
    if same_bits(baseline, gradient):
        return Row(name, 0.0, cosine, True)
    error = gap / norm_b if norm_b else (float("inf") if gap else 0.0)
    return Row(name, error if math.isfinite(error) else float("inf"), cosine, False)
