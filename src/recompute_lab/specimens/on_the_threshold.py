"""Vectors that a cap has shortened to its limit, and that a second cap looks at: mass piled up at a threshold."""

from __future__ import annotations

from collections.abc import Callable

import torch

from recompute_lab.specimens.full_shape_cap import FullShapeNormCap
from recompute_lab.specimens.norm_cap import GuardedNormCap, RepairedNormCap, ratios
from recompute_lab.specimens.trunk import exact

LIMIT = 1.5  # in the middle between two powers of two, so that the last place has one size on both sides
_PART = 4096  # positions


class OnTheThreshold:
    """`positions` vectors of `width` elements, all alike, each shortened to `LIMIT` times the length of its stream.

    `noise` moves the last bits between the two caps. `ratios()` is what the second cap sees in one more pass; `segment`
    is that second cap, ready to be checkpointed, and `vectors` its argument: [positions, width], float32.
    """

    def __init__(
        self,
        positions: int,
        noise: Callable = exact,
        *,
        width: int = 16,
        seed: int = 0,
        device: str | torch.device = "cpu",
    ):
        if positions < 1:
            raise ValueError(f"there must be a position to look at; got {positions}")
        generator = torch.Generator().manual_seed(seed)
        update, stream = torch.randn(2, 1, width, generator=generator).to(device)
        capped = RepairedNormCap(LIMIT)(update * (2 * stream.norm() / update.norm()), stream)
        self.vectors = capped.expand(positions, width).contiguous().requires_grad_()
        self.stream = stream.expand(positions, width)
        self.noise = noise

    def ratios(self) -> torch.Tensor:
        """One pass: each vector's length in lengths of its stream, after the noise: [positions], float32."""
        with torch.no_grad():  # in parts that a processor's cache holds: half the time, the same bits
            parts = zip(self.vectors.split(_PART), self.stream.split(_PART), strict=True)
            return torch.cat([ratios(self.noise(vectors), stream) for vectors, stream in parts])

    def segment(self, limit: float, full_shape: bool = False) -> Callable[[torch.Tensor], torch.Tensor]:
        """Noise, a guarded cap, tanh. The cap's scale is one number per vector, or has the vectors' shape."""
        # A number divided by a tensor is a reciprocal and a product: two roundings, which shift some limits by an ulp.
        # Of two tensors the quotient is rounded once, and is below 1 exactly where the ratio is past the limit.
        cap = (FullShapeNormCap if full_shape else GuardedNormCap)(self.vectors.new_tensor(limit))

        def capped_again(vectors: torch.Tensor) -> torch.Tensor:
            return torch.tanh(cap(self.noise(vectors), self.stream))

        return capped_again
