"""A training loop."""

import torch
import torch.nn.functional as F

from .config import Config
from .data import batch
from .model import Classifier
from .scoring import accuracy


class Rows:
    """How many rows each step has had."""

    def __init__(self):
        self.counts = []

    def mean(self) -> float:
        return sum(self.counts) / len(self.counts) if self.counts else 0.0


class Trainer:
    """Every step with a batch of its own; `losses` has what came of them."""

    def __init__(self, config: Config | None = None, seed: int = 0):
        self.config = config or Config()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.model = Classifier(self.config)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.losses, self.rows = [], Rows()

    def step(self, number: int) -> float:
        tokens, labels = batch(self.config, seed=number)
        loss = F.cross_entropy(self.model(tokens), labels)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.losses.append(loss.item())
        self.rows.counts.append(len(labels))
        return self.losses[-1]

    def run(self, steps: int) -> str:
        for number in range(steps):
            self.step(number)
        if self.rows.mean():
            return f"{steps} steps of {self.rows.mean():.0f} rows"
        return "no step was made"

    def evaluate(self, seed: int = 1000) -> float:
        self.model.eval()
        tokens, labels = batch(self.config, seed)
        with torch.no_grad():
            result = accuracy(self.model(tokens), labels)
        self.model.train()
        return result
