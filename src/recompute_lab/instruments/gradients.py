"""How far a strategy's gradients, buffers and side effects are from the plain run's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from recompute_lab.instruments.checkpointing import NON_REENTRANT, PLAIN, Mismatch, Strategy, weighted_sum
from recompute_lab.instruments.isolation import copy_call
from recompute_lab.instruments.state import Snapshot, same_bits


@dataclass(frozen=True)
class Row:
    """One leaf's gradient against the baseline.

    `error` is the relative error |g - b| / |b| in the Euclidean norm (infinite where b is zero and g is not), `cosine`
    the cosine of the angle between the two; both are computed in float64, and are NaN where a side is missing.
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

    def __str__(self) -> str:
        if self.raised is not None:
            return f"{self.strategy}: raised {type(self.raised).__name__} ({Mismatch.of(self.raised)})"
        if self.equal:
            return f"{self.strategy}: equal to the plain run, bit for bit"
        lines = [f"{self.strategy}: largest relative gradient error {self.worst:.1e}"]
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
    output cannot be differentiated. All state the segment can reach is afterwards as it was.
    """
    before = Snapshot(segment, *args, **kwargs)
    try:
        plain = _run(before, PLAIN, segment, args, kwargs, loss)
        result = Divergence(strategy.name, effects=plain.changes)
        before.restore()
        try:
            other = _run(before, strategy, segment, args, kwargs, loss)
        except Exception as error:
            result.raised = error
            return result
    finally:
        before.restore()
    result.changed = sorted(
        name
        for name in {*plain.changes, *other.changes}
        if name not in plain.values or name not in other.values or not _equal(plain.values[name], other.values[name])
    )
    result.output_equal = same_bits(plain.loss, other.loss)
    result.missing = [name for name in plain.grads if name not in other.grads]
    result.unexpected = [name for name in other.grads if name not in plain.grads]
    result.rows = [_compare(name, g, other.grads[name]) for name, g in plain.grads.items() if name in other.grads]
    return result


@dataclass
class _Run:
    loss: torch.Tensor
    grads: dict[str, torch.Tensor]
    changes: list[str]
    values: dict[str, object]


def _run(before: Snapshot, strategy: Strategy, segment, args, kwargs, loss) -> _Run:
    before.clear_grads()
    call = copy_call(*args, **kwargs)
    value = loss(strategy(segment, *call.args, **call.kwargs))
    if not isinstance(value, torch.Tensor) or not value.requires_grad or value.numel() != 1:
        raise ValueError("`loss` must return one number that requires grad")
    value.backward(retain_graph=True)
    leaves = {**before.parameters(), **call.leaves}
    grads = {name: leaf.grad.detach().clone() for name, leaf in leaves.items() if leaf.grad is not None}
    changes = before.changes()
    return _Run(value.detach(), grads, changes, before.values_now(changes))


def _equal(a, b) -> bool:
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        return same_bits(a, b)
    try:
        return bool(a == b)
    except Exception:  # an object of the user's that does not compare
        return False


def _compare(name: str, baseline: torch.Tensor, gradient: torch.Tensor) -> Row:
    if baseline.shape != gradient.shape:
        return Row(name, float("inf"), float("nan"), False)
    b, g = (t.reshape(-1).to(torch.complex128 if t.is_complex() else torch.float64) for t in (baseline, gradient))
    norm_b, norm_g, gap = (float(t.norm()) for t in (b, g, g - b))
    error = gap / norm_b if norm_b else (float("inf") if gap else 0.0)
    cosine = float((b.conj() * g).sum().real) / (norm_b * norm_g) if norm_b and norm_g else float("nan")
    return Row(name, error, cosine, same_bits(baseline, gradient))
