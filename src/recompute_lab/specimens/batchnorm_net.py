"""A small convolutional network with BatchNorm in the part that is checkpointed."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

import torch
from torch import nn


class BatchNormNet(nn.Module):
    """Images [N, 1, 8, 8], float32 -> logits [N, 10]: a convolution, the `segment`, a mean over places, a linear head.

    The segment is twice convolution, BatchNorm, ReLU. `momentum` is that of both BatchNorms, as torch defines it: the
    weight of the batch in the running statistics; None averages all batches alike. A seed gives the weights. Raises
    ValueError for a momentum that is not between 0 and 1.
    """

    def __init__(self, momentum: float | None = 0.1, seed: int = 0, channels: tuple[int, int] = (16, 32)):
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
            self.head = nn.Linear(second, 10)

    def forward(self, images: torch.Tensor, run_segment: Callable | None = None) -> torch.Tensor:
        """`run_segment(segment, x)` says how the segment is run: plainly by default."""
        x = self.stem(images)
        x = run_segment(self.segment, x) if run_segment else self.segment(x)
        return self.head(x.mean((2, 3)))

    def norms(self) -> dict[str, nn.BatchNorm2d]:
        """Every BatchNorm, by its name in the segment."""
        return {name: part for name, part in self.segment.named_children() if isinstance(part, nn.BatchNorm2d)}
