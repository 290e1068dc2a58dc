"""Root cause 7: the recomputation takes another kernel. The function is the same, what it saves is not."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from recompute_lab.specimens.steps import NON_REENTRANT, Model, Run, power


class Attention(nn.Module):
    """Two heads over four sequences of eight rows: [32, 16] -> [32, 16]."""

    def __init__(self):
        super().__init__()
        self.into, self.out = nn.Linear(16, 48), nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query, key, value = self.into(x).view(4, 8, 2, 24).transpose(1, 2).chunk(3, dim=-1)
        mixed = scaled_dot_product_attention(query, key, value)
        return x + self.out(mixed.transpose(1, 2).reshape(32, 16))


class KernelChosen(Model):
    """The caller chooses a kernel for the forward; in backward, torch chooses for itself."""

    def build(self) -> None:
        self.stem, self.attention = nn.Linear(16, 16), Attention()

    def step(self, run: Run = NON_REENTRANT) -> torch.Tensor:
        with sdpa_kernel(SDPBackend.MATH):
            loss = power(run(self.attention, self.stem(self.rows)))
        loss.backward()
        return loss.detach()


class KernelChosenInside(KernelChosen):
    """The choice is made in the segment, so in both passes."""

    def step(self, run: Run = NON_REENTRANT) -> torch.Tensor:
        loss = power(run(self.with_math, self.stem(self.rows)))
        loss.backward()
        return loss.detach()

    def with_math(self, x: torch.Tensor) -> torch.Tensor:
        with sdpa_kernel(SDPBackend.MATH):
            return self.attention(x)
