"""Noise on the features, drawn with NumPy in the forward."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from recompute_lab.specimens.steps import NON_REENTRANT, Block, Model, Run, power


class Jittered(Model):
    """In training, noise from N(0, strength^2) is added to the block's input, [N, 16] -> [N, 16]; else none."""

    def build(self) -> None:
        self.stem, self.block, self.strength = nn.Linear(16, 16), Block(), 0.5

    def noisy(self, x: Tensor) -> Tensor:
        if self.training:
            noise = np.random.standard_normal(x.shape)
            x = x + self.strength * torch.from_numpy(noise).float()
        return self.block(x)

    def step(self, run: Run = NON_REENTRANT) -> Tensor:
        loss = power(run(self.noisy, self.stem(self.rows)))
        loss.backward()
        return loss.detach()
