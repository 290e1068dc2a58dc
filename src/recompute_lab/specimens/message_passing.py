"""A message-passing layer whose sum comes in no fixed order, so that its last bits differ between runs."""

from __future__ import annotations

import torch
from torch import nn


class MessagePassing(nn.Module):
    """Sum the messages that arrive at each node of a random graph, cap the sum, add it: [nodes, width] -> same.

    The sum is an accumulating `index_put`; on CUDA, an `index_add`. There, and on a CPU with at least two torch threads
    and 32,768 message elements, the additions into a node race each other, unless
    `torch.use_deterministic_algorithms(True)` is on. `cap` is a norm cap: it is called as `cap(sum, nodes)`; leave it
    out to look at the sum alone.
    """

    def __init__(
        self, cap: nn.Module | None = None, *, nodes: int = 256, edges: int = 32_768, width: int = 16, seed: int = 0
    ):
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.cap = cap
        self.message = nn.Linear(width, width)
        self.register_buffer("source", torch.randint(0, nodes, (edges,), generator=generator))
        self.register_buffer("target", torch.randint(0, nodes, (edges,), generator=generator))

    def forward(self, nodes: torch.Tensor) -> torch.Tensor:
        messages = self.message(nodes)[self.source]
        update = torch.zeros_like(nodes)
        if update.is_cuda:  # there, an accumulating index_put sorts first, and it is index_add whose additions race
            update = update.index_add(0, self.target, messages)
        else:
            update = update.index_put((self.target,), messages, accumulate=True)
        if self.cap is not None:
            update = self.cap(update, nodes)
        return nodes + update
