"""Root cause 1: the segment is cut off from the graph around it. Only the reentrant implementation does that.

It joins the graph as one operation of its arguments: tensors that it sees there, one by one, and that require grad.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from recompute_lab.specimens.steps import NON_REENTRANT, Block, Model, Run, power


class FrozenEmbedding(Model):
    """Fine-tuning: the embedding is frozen, what comes after it learns. No argument of the block requires grad."""

    def build(self) -> None:
        self.embedding, self.block, self.head = nn.Embedding(50, 16), Block(), nn.Linear(16, 4)
        self.embedding.requires_grad_(False)
        self.tokens, self.targets = torch.randint(50, (32,)), torch.randint(4, (32,))

    def embedded(self) -> torch.Tensor:
        return self.embedding(self.tokens)

    def step(self, run: Run = NON_REENTRANT) -> torch.Tensor:
        logits = self.head(run(self.block, self.embedded()))
        loss = cross_entropy(logits, self.targets)
        loss.backward()
        return loss.detach()


class FrozenEmbeddingJoined(FrozenEmbedding):
    """The block's input requires grad, though nobody needs that gradient: it is what joins the block to the graph."""

    def embedded(self) -> torch.Tensor:
        return self.embedding(self.tokens).requires_grad_()


class Joint(nn.Module):
    """Mixes all features so far into new ones: (n tensors [N, 16], as one list) -> [N, 16]."""

    def __init__(self, inputs: int):
        super().__init__()
        self.mix = nn.Linear(16 * inputs, 16)

    def forward(self, features: list[torch.Tensor]) -> torch.Tensor:
        return torch.tanh(self.mix(torch.cat(features, dim=1)))


class DenselyConnected(Model):
    """Each layer takes the outputs of all earlier ones, in a list. To look into a list is not what reentrant does."""

    def build(self) -> None:
        self.stem, self.layers = nn.Linear(16, 16), nn.ModuleList(Joint(n) for n in (1, 2))

    def step(self, run: Run = NON_REENTRANT) -> torch.Tensor:
        features = [self.stem(self.rows)]
        for layer in self.layers:
            features.append(self.joined(run, layer, features))
        loss = power(torch.cat(features, dim=1))
        loss.backward()
        return loss.detach()

    def joined(self, run: Run, layer: Joint, features: list[torch.Tensor]) -> torch.Tensor:
        return run(layer, list(features))


class DenselyConnectedUnpacked(DenselyConnected):
    """Each tensor is an argument of its own; the list is made inside."""

    def joined(self, run: Run, layer: Joint, features: list[torch.Tensor]) -> torch.Tensor:
        return run(lambda *tensors: layer(list(tensors)), *features)
