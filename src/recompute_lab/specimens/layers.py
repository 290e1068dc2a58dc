"""What the specimens of side effects share: two layers, and what a training loop does around them."""

from __future__ import annotations

import torch
from torch import nn


class Layers(nn.Module):
    """second(tanh(first(x))), [N, 16] -> [N, 16]; weights of their own seed. This is what is checkpointed."""

    def __init__(self, seed: int = 0):
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.build()

    def build(self) -> None:
        """Make the submodules; the random stream is seeded."""
        self.first, self.second = nn.Linear(16, 16), nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.tanh(self.first(x)))

    def begin_step(self) -> None:
        """The training loop calls this before each step."""

    def arguments(self, call: int, rows: int) -> tuple:
        """What `forward` takes besides x in its call number `call`, where each call has `rows` rows."""
        return ()

    def terms(self, outputs: list) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """Of what the calls of a step returned: the outputs proper, and the scalars that the loop adds to the loss."""
        return outputs, []
