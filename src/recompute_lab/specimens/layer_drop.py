"""Layer drop: a draw decides whether a whole layer runs. A lost draw changes not a mask but the graph.

Source: G. Huang et al., "Deep Networks with Stochastic Depth", ECCV 2016; without its scaling, which matters not here.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from recompute_lab.specimens.dropout_net import plain


class DroppedLayer(nn.Module):
    """x + tanh(linear(x)), [B, width] -> [B, width]; x alone with probability `p`, by a draw of torch's generator.

    It saves three tensors where it runs and none where it is skipped.
    """

    def __init__(self, p: float, width: int):
        super().__init__()
        self.p, self.linear = p, nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if float(torch.rand(())) < self.p:
            return x
        return x + torch.tanh(self.linear(x))


class LayerDropNet(nn.Module):
    """`depth` such layers, [B, width] -> [B, width]; with `head`, a linear layer to ten outputs at their end.

    `run(segment, x)` says how each layer is run. The segment that is checkpointed may also be all of this.
    """

    def __init__(self, p: float = 0.25, depth: int = 8, width: int = 16, head: bool = False, seed: int = 0):
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.layers = nn.ModuleList(DroppedLayer(p, width) for _ in range(depth))
            self.head = nn.Linear(width, 10) if head else None

    def forward(self, x: torch.Tensor, run: Callable = plain) -> torch.Tensor:
        for layer in self.layers:
            x = run(layer, x)
        return self.head(x) if self.head else x


def layers_run(p: float, depth: int, seed: int, passes: int = 2) -> list[list[bool]]:
    """Which layers run in each pass, for a generator seeded with `seed` and never rewound: one draw per layer."""
    generator = torch.Generator().manual_seed(seed)
    return [[float(torch.rand((), generator=generator)) >= p for _ in range(depth)] for _ in range(passes)]
