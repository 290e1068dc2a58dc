"""The classifier: embed, run the blocks, each checkpointed, judge the mean."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint, noop_context_fn

from .blocks import Block
from .data import PAD


class Classifier(nn.Module):
    """Tokens [rows, places], int64, to logits [rows, classes]. `context_fn` is handed on to the checkpoints."""

    def __init__(self, config, context_fn=noop_context_fn):
        super().__init__()
        self.config, self.context_fn = config, context_fn
        self.embed = nn.Embedding(config.vocabulary, config.width)
        self.places = nn.Parameter(0.1 * torch.randn(config.places, config.width))
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.depth))
        self.head = nn.Linear(config.width, config.classes)

    def forward(self, tokens):
        if tokens.shape[1] != self.config.places:
            raise ValueError(f"rows have {self.config.places} places, these have {tokens.shape[1]}: pad them")
        largest = tokens.max().item()
        if largest >= self.config.vocabulary:
            raise ValueError(f"token {largest} is not in the vocabulary of {self.config.vocabulary}")
        padding = tokens == PAD
        x = self.embed(tokens) + self.places
        for block in self.blocks:
            if self.config.checkpointed and self.training:
                x = checkpoint(block, x, padding, use_reentrant=False, context_fn=self.context_fn)
            else:
                x = block(x, padding)
        return self.head(self.pooled(x, padding))

    def pooled(self, x, padding):
        """The mean over the places that any row uses, over half of them where none does."""
        used = int((~padding).sum(-1).max()) or self.config.places // 2
        return x[:, :used].mean(1)
