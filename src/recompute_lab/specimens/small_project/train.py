"""A training loop."""

import torch
import torch.nn.functional as F

from .config import Config
from .data import batch
from .model import Classifier
from .scoring import accuracy


class History:
    """The losses so far, as Python numbers."""

    def __init__(self):
        self.losses = []

    def mean(self) -> float:
        return sum(self.losses) / len(self.losses) if self.losses else 0.0


class Trainer:
    """Every step with a batch of its own; `history` has the losses."""

    def __init__(self, config: Config | None = None, seed: int = 0):
        self.config = config or Config()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.model = Classifier(self.config)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.history = History()

    def step(self, number: int) -> float:
        tokens, labels = batch(self.config, seed=number)
        loss = F.cross_entropy(self.model(tokens), labels)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.history.losses.append(loss.item())
        return self.history.losses[-1]

    def run(self, steps: int) -> str:
        for number in range(steps):
            self.step(number)
        if self.history.mean():
            return f"{steps} steps, a mean loss of {self.history.mean():.1f}"
        return "no step was made"

    def evaluate(self, seed: int = 1000) -> float:
        self.model.eval()
        tokens, labels = batch(self.config, seed)
        with torch.no_grad():
            result = accuracy(self.model(tokens), labels)
        self.model.train()
        return result
