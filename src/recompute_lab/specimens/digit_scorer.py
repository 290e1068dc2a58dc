"""A small model of handwritten digits, fitted in closed form, whose sums come in no fixed order on several threads."""

from __future__ import annotations

from functools import cache

import torch
from torch import nn

from recompute_lab.specimens.digits import digit_sequences

_FITTED = 898  # the digits of the first half; the others are held out
_RIDGE = 1.0


class DigitScorer(nn.Module):
    """Scores the ten classes of digits that are given as patches: [n, 16, 4] -> [n, 10].

    Each patch that is not blank is made into `width` random features of its own; a digit is the sum of its patches'
    features, and the scores are linear in that. The sum is an accumulating `index_put` over all patches of a batch, in
    the order of their place in the image: with two torch threads, and some dozens of digits, the additions into one
    digit race each other, unless `torch.use_deterministic_algorithms(True)` is on.
    """

    def __init__(self, width: int = 128, seed: int = 0):
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        # Uniform numbers: of normal ones, the last bits differ between CPUs.
        self.register_buffer("weight", 4 * torch.rand(16, 4, width, generator=generator) - 2)
        self.register_buffer("bias", -0.5 * torch.rand(16, width, generator=generator))
        self.register_buffer("head", torch.zeros(width, 10))
        self.register_buffer("offset", torch.zeros(10))

    def features(self, patches: torch.Tensor) -> torch.Tensor:
        """[n, 16, 4] -> [n, width]."""
        made, digits = [], []
        for place in range(16):
            inked = (patches[:, place].amax(1) > 0).nonzero().flatten()
            made.append(torch.relu(patches[inked, place] @ self.weight[place] + self.bias[place]))
            digits.append(inked)
        total = patches.new_zeros(len(patches), self.weight.shape[2])
        if total.is_cuda:  # there, an accumulating index_put sorts first, and it is index_add whose additions race
            return total.index_add(0, torch.cat(digits), torch.cat(made))
        return total.index_put((torch.cat(digits),), torch.cat(made), accumulate=True)

    def forward(self, patches: torch.Tensor) -> torch.Tensor:
        return self.features(patches) @ self.head + self.offset

    @torch.no_grad()
    def fit(self, patches: torch.Tensor, labels: torch.Tensor) -> DigitScorer:
        """Ridge regression to the classes' indicators, in float64: the same weights on every machine. Returns self."""
        wide = DigitScorer(self.weight.shape[2]).double()
        wide.load_state_dict({name: tensor.double() for name, tensor in self.state_dict().items()})
        features = wide.features(patches.double())
        mean = features.mean(0)
        centred = features - mean
        targets = nn.functional.one_hot(labels, 10).double()
        gram = centred.T @ centred + _RIDGE * torch.eye(len(mean), dtype=torch.float64)
        head = torch.linalg.solve(gram, centred.T @ (targets - targets.mean(0)))
        self.head.copy_(head)
        self.offset.copy_(targets.mean(0) - mean @ head)
        return self


def held_out() -> tuple[torch.Tensor, torch.Tensor]:
    """The 899 digits that `scorer` has not seen: patches [899, 16, 4] and labels [899]."""
    patches, labels = digit_sequences()
    return patches[_FITTED:], labels[_FITTED:]


def scorer() -> DigitScorer:
    """A scorer, fitted to the first 898 digits; it takes a fifth of a second, once."""
    made = DigitScorer()
    made.load_state_dict(_fitted())
    return made


@cache
def _fitted() -> dict[str, torch.Tensor]:
    patches, labels = digit_sequences()
    return DigitScorer().fit(patches[:_FITTED], labels[:_FITTED]).state_dict()
