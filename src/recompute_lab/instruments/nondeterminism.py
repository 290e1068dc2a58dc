"""Where differing bits come from: real ones, from additions in no fixed order; and staged ones, from a seeded nudge.

Both kinds are callables that take a tensor and return one of the same shape and dtype, equal up to some last bits, and
which add no saved tensor: gradients pass through unchanged. A segment that needs noise takes either as an argument.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping

import torch

from recompute_lab.instruments.state import same_bits

# torch splits an accumulating index_put over threads from this many elements on (at::internal::GRAIN_SIZE).
ATOMIC_ELEMENTS = 32_768


def accumulate(source: torch.Tensor, index: torch.Tensor, size: int) -> torch.Tensor:
    """Sum the rows of `source` ([n, ...]) into `size` rows by `index` ([n], int64): [size, ...], in `source`'s dtype.

    On a CPU with two threads and enough elements, and on CUDA, the additions into one place come in an order that
    nobody fixes, so that repeated calls differ in their last bits. `torch.use_deterministic_algorithms(True)` fixes it.
    """
    total = source.new_zeros((size, *source.shape[1:]))
    if source.is_cuda:  # there, an accumulating index_put sorts first, and it is index_add that uses atomics
        return total.index_add(0, index, source)
    return total.index_put((index,), source, accumulate=True)


class Atomics:
    """Real noise: the tensor taken apart into `shares` parts, which are added up again in no fixed order.

    A matrix product that is split along its inner dimension, or a scatter, does the same on a GPU. Each element keeps
    its value up to rounding. Where the machine has one thread, or deterministic algorithms are on, nothing varies; nor
    does it in bfloat16 or float64 on a CPU, where torch adds up float32 alone with several threads.
    """

    def __init__(self, shares: int = 16, seed: int = 0):
        if shares < 3:  # 0 + a + b is 0 + b + a, to the last bit
            raise ValueError(f"fewer than 3 parts add up to the same bits in any order; got shares={shares}")
        weights = torch.rand(shares, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) + 0.5
        self.weights = weights / weights.sum()

    def __call__(self, tensor: torch.Tensor) -> torch.Tensor:
        if not (tensor.is_floating_point() or tensor.is_complex()):
            raise TypeError(f"real noise is that of floating-point numbers; got {tensor.dtype}")
        with torch.no_grad():
            # Parts of a small tensor are spread among zeros, until there are enough additions for torch to use threads.
            spread = max(1, 4 * ATOMIC_ELEMENTS // max(len(self.weights) * tensor.numel(), 1))
            weights = torch.zeros(len(self.weights), spread).to(tensor)
            weights[:, 0] = self.weights
            parts = (weights.reshape(-1, 1) * tensor.reshape(1, -1)).reshape(-1)
            index = torch.arange(tensor.numel(), device=tensor.device).repeat(weights.numel())
            noise = accumulate(parts, index, tensor.numel()).reshape(tensor.shape) - tensor
            noise = torch.where(noise.isfinite(), noise, 0.0)
        return tensor + noise


class Nudge:
    """Staged noise: on chosen passes every element moves by some units in the last place.

    `ulps` maps the number of a pass (1 is the forward, 2 its recomputation) to signed units in the last place: positive
    is away from zero, negative towards it, so a vector grows or shrinks as a whole. A pass that is not named is left
    alone, and so are zeros, infinities and NaNs. One number in place of the map holds for every pass. With a `seed`,
    each element's sign is drawn anew from it instead. Wrap the segment in `counted` so that the nudge knows the pass,
    and call `rewind` before each step. No element is moved past zero or past the largest finite number.
    """

    def __init__(self, ulps: Mapping[int, int] | int, seed: int | None = None):
        if isinstance(ulps, Mapping) and any(number < 1 for number in ulps):
            raise ValueError(f"passes are counted from 1; got {sorted(ulps)}")
        self.ulps = dict(ulps) if isinstance(ulps, Mapping) else ulps
        self.pass_number = 0
        self.generator = None if seed is None else torch.Generator().manual_seed(seed)

    def counted(self, segment: Callable) -> Callable:
        """The same segment; each call of it is one pass."""

        def counted_segment(*args, **kwargs):
            self.pass_number += 1
            return segment(*args, **kwargs)

        return counted_segment

    def rewind(self) -> None:
        """The next pass is a forward again."""
        self.pass_number = 0

    def __call__(self, tensor: torch.Tensor) -> torch.Tensor:
        steps = self.ulps.get(self.pass_number, 0) if isinstance(self.ulps, dict) else self.ulps
        if steps == 0:
            return tensor
        with torch.no_grad():
            noise = moved(tensor, self._signed(steps, tensor)) - tensor
            # Adding -0.0 changes no bit, where +0.0 would turn -0.0 into 0.0.
            noise = torch.where(tensor.isfinite() & (tensor != 0), noise, -0.0)
        return tensor + noise

    def _signed(self, steps: int, tensor: torch.Tensor) -> int | torch.Tensor:
        if self.generator is None:
            return steps
        signs = torch.randint(0, 2, tensor.shape, generator=self.generator, dtype=torch.int8) * 2 - 1
        integer = _integer(tensor)
        return signs.to(tensor.device, integer) * _fitting(steps, integer)


class StagedRace(Nudge):
    """Staged noise that is gone, as that of racing additions is, under `torch.use_deterministic_algorithms(True)`.

    Each call is a pass, so no `counted` is needed: `ulps` by the number of the call, or one number for every call.
    """

    def __call__(self, tensor: torch.Tensor) -> torch.Tensor:
        self.pass_number += 1
        return tensor if torch.are_deterministic_algorithms_enabled() else super().__call__(tensor)


_BITS = {
    torch.float64: torch.int64,
    torch.float32: torch.int32,
    torch.float16: torch.int16,
    torch.bfloat16: torch.int16,
}


def moved(tensor: torch.Tensor, ulps: int | torch.Tensor) -> torch.Tensor:
    """Each element moved by `ulps` units in the last place, away from zero, or towards it where negative.

    `ulps` is one number or an integer tensor of the same shape. What would pass zero or the largest finite number stays
    there; infinities and NaNs are not to be moved. Any floating-point dtype of two bytes or more; raises TypeError for
    another, and for `ulps` that are not whole numbers.
    """
    integer = _integer(tensor)
    bits = tensor.detach().contiguous().view(integer)
    # The bits of a float without its sign are in the order of the floats.
    magnitude = bits & torch.iinfo(integer).max
    largest = torch.full((), torch.finfo(tensor.dtype).max, dtype=tensor.dtype).view(integer).item()
    steps = torch.as_tensor(_fitting(ulps, integer), dtype=integer, device=tensor.device)
    steps = torch.minimum(torch.maximum(steps, -magnitude), largest - magnitude)  # so that the sum cannot overflow
    return ((magnitude + steps) | (bits ^ magnitude)).view(tensor.dtype)


def _integer(tensor: torch.Tensor) -> torch.dtype:
    """The integers that have as many bits as a tensor's numbers."""
    if tensor.dtype not in _BITS:
        raise TypeError(f"the last place can be moved of {', '.join(map(str, _BITS))}; got {tensor.dtype}")
    return _BITS[tensor.dtype]


def _fitting(steps: int | torch.Tensor, integer: torch.dtype) -> int | torch.Tensor:
    """As many steps, or as many as there are numbers in the dtype: more lead to the same end, but would wrap around."""
    most = torch.iinfo(integer).max
    if not isinstance(steps, torch.Tensor):
        return max(-most, min(operator.index(steps), most))
    if steps.is_floating_point() or steps.is_complex():
        raise TypeError(f"steps are whole numbers; got {steps.dtype}")
    return steps if steps.element_size() <= integer.itemsize else steps.clamp(-most, most)


def disagreements(function: Callable[[], torch.Tensor], calls: int = 20) -> int:
    """How many of `calls` further calls return other bits than the first one."""
    first = function()
    return sum(not same_bits(function(), first) for _ in range(calls))


def atomics_differ(device: str | torch.device = "cpu", calls: int = 20) -> bool:
    """True where accumulation differs between calls on this machine, with the threads and switches now in force."""
    generator = torch.Generator().manual_seed(0)
    tensor = torch.randn(4 * ATOMIC_ELEMENTS, generator=generator).to(device)
    noise = Atomics()
    return disagreements(lambda: noise(tensor), calls) > 0
