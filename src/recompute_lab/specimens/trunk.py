"""A small transformer whose trunk, eight blocks in one segment, saves 160 tensors, one more per cap that fires.

Each block saves 20: nothing is padded to reach a number. A norm cap stands in the first block, twice in a row, as
happens where a helper caps and its caller caps again: 162 when both multiply, 161 when only the first does.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional as F

from recompute_lab.specimens.norm_cap import GuardedNormCap


def exact(tensor: torch.Tensor) -> torch.Tensor:
    """The absence of noise."""
    return tensor


class Block(nn.Module):
    """A pre-norm transformer block: [B, T, width] -> [B, T, width].

    Attention is written out, since a fused kernel may save another number of tensors on another device or version.
    `caps` are applied, in order, to the update of the MLP; before each, `noise` is applied to that update.
    """

    def __init__(self, width: int, heads: int, caps: list[nn.Module], noise: Callable = exact):
        super().__init__()
        self.heads = heads
        self.norm_attention = nn.LayerNorm(width, elementwise_affine=False)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm_mlp = nn.LayerNorm(width, elementwise_affine=False)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)
        self.caps = nn.ModuleList(caps)
        self.noise = noise

    def forward(self, stream: torch.Tensor) -> torch.Tensor:
        stream = stream + self.attention(self.norm_attention(stream))
        update = self.down(F.gelu(self.up(self.norm_mlp(stream))))
        for cap in self.caps:
            update = cap(self.noise(update), stream)
        return stream + update

    def attention(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        scores = q @ k.transpose(-1, -2) / math.sqrt(width // self.heads)
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, length, width))


class Trunk(nn.Module):
    """Eight blocks, [B, T, width] -> [B, T, width]: the segment that is checkpointed.

    `cap` makes a norm cap from a limit; `caps_in_a_row` of them stand in the first block.
    """

    def __init__(
        self,
        cap: Callable[[float], nn.Module] = GuardedNormCap,
        limit: float = 1.0,
        caps_in_a_row: int = 2,
        noise: Callable = exact,
        *,
        width: int = 32,
        heads: int = 4,
        blocks: int = 8,
    ):
        super().__init__()
        first = [cap(limit) for _ in range(caps_in_a_row)]
        self.blocks = nn.Sequential(*(Block(width, heads, first if i == 0 else [], noise) for i in range(blocks)))

    def forward(self, stream: torch.Tensor) -> torch.Tensor:
        return self.blocks(stream)


class DigitClassifier(nn.Module):
    """Patches of a digit -> trunk -> ten logits: [B, 16, 4] -> [B, 10].

    `run_trunk(trunk, stream)` is how the segment is run: give a checkpointing strategy, or leave it plain.
    """

    def __init__(self, trunk: Trunk, width: int = 32):
        super().__init__()
        self.embed = nn.Linear(4, width)
        self.position = nn.Parameter(torch.randn(16, width) * 0.5)
        self.trunk = trunk
        self.head = nn.Linear(width, 10)

    def forward(self, patches: torch.Tensor, run_trunk: Callable | None = None) -> torch.Tensor:
        stream = self.embed(patches) + self.position
        stream = self.trunk(stream) if run_trunk is None else run_trunk(self.trunk, stream)
        return self.head(stream.mean(1))
