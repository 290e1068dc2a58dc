"""A small convolutional network whose checkpointed part has BatchNorm, and a BatchNorm inside nested segments."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence

import torch
from torch import nn


class Monitor(nn.BatchNorm2d):
    """Watches what passes and leaves it alone, [N, C, H, W]: statistics for a log. It saves nothing for backward."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            super().forward(x)
        return x


class BatchNormNet(nn.Module):
    """Images [N, 1, 8, 8], float32 -> logits [N, 10]: a convolution, the `segment`, a mean over places, a linear head.

    The segment is twice convolution, BatchNorm, ReLU. `momentum` is that of both BatchNorms, as torch defines it: the
    weight of the batch in the running statistics; None averages all batches alike. `monitor` puts a `Monitor` of the
    same momentum at the segment's end. A seed gives the weights. Raises ValueError for a momentum that is not between 0
    and 1.
    """

    def __init__(
        self,
        momentum: float | None = 0.1,
        seed: int = 0,
        channels: tuple[int, int] = (16, 32),
        monitor: bool = False,
    ):
        super().__init__()
        if momentum is not None and not 0 <= momentum <= 1:
            raise ValueError(f"momentum is the weight of a batch, from 0 to 1, or None; got {momentum}")
        first, second = channels
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.stem = nn.Conv2d(1, first, 3, stride=2, padding=1)
            self.segment = nn.Sequential(
                OrderedDict(
                    conv1=nn.Conv2d(first, first, 3, padding=1, bias=False),
                    norm1=nn.BatchNorm2d(first, momentum=momentum),
                    relu1=nn.ReLU(),
                    conv2=nn.Conv2d(first, second, 3, padding=1, bias=False),
                    norm2=nn.BatchNorm2d(second, momentum=momentum),
                    relu2=nn.ReLU(),
                )
            )
            if monitor:
                self.segment.add_module("monitor", Monitor(second, momentum=momentum))
            self.head = nn.Linear(second, 10)

    def forward(self, images: torch.Tensor, run_segment: Callable | None = None) -> torch.Tensor:
        """`run_segment(segment, x)` says how the segment is run: plainly by default."""
        x = self.stem(images)
        x = run_segment(self.segment, x) if run_segment else self.segment(x)
        return self.head(x.mean((2, 3)))

    def norms(self) -> dict[str, nn.BatchNorm2d]:
        """Every BatchNorm, by its name in the segment."""
        return {name: part for name, part in self.segment.named_children() if isinstance(part, nn.BatchNorm2d)}


class Nest(nn.Module):
    """BatchNorm at the bottom of segments that contain each other: [N, 4] -> [N, 4].

    `depth` segments are nested, each run by `run_segment(segment, x)`; 0 is a BatchNorm that no segment contains. The
    innermost is BatchNorm and tanh; each of the others has a tanh in front of the segment that it contains, and one
    behind it where `behind[i]` says so, for the i-th from the outermost inwards; by default none has. Raises ValueError
    where `behind` does not have `depth` - 1 entries.
    """

    def __init__(self, depth: int, run_segment: Callable, behind: Sequence[bool] | None = None, momentum: float = 0.1):
        super().__init__()
        if depth < 0:
            raise ValueError(f"a depth is a number of segments, 0 at least; got {depth}")
        outer = max(depth - 1, 0)
        behind = [False] * outer if behind is None else list(behind)
        if len(behind) != outer:
            raise ValueError(f"of {depth} nested segments {outer} contain another one; `behind` has {len(behind)}")
        self.run_segment, self.behind, self.depth = run_segment, behind, depth
        self.norm = nn.BatchNorm1d(4, momentum=momentum)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self._level(0, x)

    def _level(self, level: int, x: torch.Tensor) -> torch.Tensor:
        if level >= self.depth - 1:
            return self.run_segment(self._innermost, x) if self.depth else self._innermost(x)
        return self.run_segment(lambda x: self._outer(level, x), x)

    def _outer(self, level: int, x: torch.Tensor) -> torch.Tensor:
        x = self._level(level + 1, torch.tanh(x))
        return torch.tanh(x) if self.behind[level] else x

    def _innermost(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.norm(x))
