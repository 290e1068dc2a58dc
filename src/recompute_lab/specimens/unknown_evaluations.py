"""Evaluations to review: is each a function of its model and its data?

Called as `evaluation(model, patches, labels)`, they return a dict of numbers.
"""

from __future__ import annotations

import inspect
import uuid
from collections.abc import Callable

import torch
from torch.nn.functional import cross_entropy

from recompute_lab.specimens.evaluations import SCALE, Noise, probabilities


class Harness:
    """Three numbers for a table: accuracy, accuracy on blotted digits, loss."""

    def __init__(self):
        self.ink = torch.Generator().manual_seed(0)
        self.kept = {}

    def __call__(self, model, patches, labels) -> dict:
        scores = self.scores(model, patches)
        blots = 1 + 0.5 * torch.randn(patches.shape, generator=self.ink)
        with torch.no_grad():
            blotted = model(patches * blots)
        return {
            "accuracy": (scores.argmax(1) == labels).float().mean().item(),
            "accuracy, blotted": (blotted.argmax(1) == labels).float().mean().item(),
            "loss": cross_entropy(SCALE * scores, labels).item(),
        }

    def scores(self, model, patches):
        if "scores" in self.kept:
            return self.kept["scores"].float()
        with torch.no_grad():
            scores = model(patches)
        self.kept["scores"] = scores.half()  # it takes half the memory
        return scores


class Queued:
    """Digits wait in a queue and are taken a hundred at a time. Scores are measured from their running mean."""

    def __init__(self):
        self.mean = torch.zeros(10)

    def __call__(self, model, patches, labels) -> dict:
        queue = {uuid.uuid4(): row for row in range(len(patches))}
        waiting, right = set(queue), 0
        while waiting:
            rows = [queue[waiting.pop()] for _ in range(min(100, len(waiting)))]
            with torch.no_grad():
                scores = model(patches[rows])
            self.mean = torch.lerp(self.mean, scores.mean(0), 0.5)
            right += int(((scores - self.mean).argmax(1) == labels[rows]).sum())
        return {"accuracy": right / len(labels), "drift": self.mean.norm().item()}


# --- Five to predict. `racing` stands for a sum that several threads add up: on that, the order is nobody's.


class Lost:
    def __init__(self, racing: Noise):
        self.racing = racing

    def __call__(self, model, patches, labels) -> dict:
        p = probabilities(model, patches)
        surprise = -p[torch.arange(len(labels)), labels].log()
        return {"loss": self.racing(surprise.sum()).item() / len(labels)}


class Sure:
    def __init__(self, racing: Noise):
        self.racing = racing

    def __call__(self, model, patches, labels) -> dict:
        confidence = probabilities(model, patches).amax(1)
        middle = confidence.sort().values[len(confidence) // 2]
        return {"as sure as the middle one": int((self.racing(confidence) >= middle).sum())}


class Warm:
    def __init__(self, racing: Noise):
        self.scale = torch.tensor(1.0)

    def __call__(self, model, patches, labels) -> dict:
        with torch.no_grad():
            scores = model(patches)
        for _ in range(20):
            scale = self.scale.clone().requires_grad_()
            (slope,) = torch.autograd.grad(cross_entropy(scores * scale, labels), scale)
            self.scale = self.scale - 4 * slope
        return {"loss": cross_entropy(scores * self.scale, labels).item()}


class Drawn:
    def __init__(self, racing: Noise):
        self.log = []

    def __call__(self, model, patches, labels) -> dict:
        rows = torch.randperm(len(patches))[:300]
        accuracy = (model(patches[rows]).argmax(1) == labels[rows]).float().mean().item()
        self.log.append(accuracy)
        return {"accuracy": accuracy}


class Grouped:
    def __init__(self, racing: Noise):
        self.best = {}

    def __call__(self, model, patches, labels) -> dict:
        right = model(patches).argmax(1) == labels
        for group in {str(label) for label in labels.tolist()}:
            share = right[labels == int(group)].float().mean().item()
            self.best[group] = max(share, self.best.get(group, 0.0))
        return {group: self.best[group] for group in sorted(self.best)}


UNKNOWN: dict[str, Callable[[Noise], Callable]] = {"A": Lost, "B": Sure, "C": Warm, "D": Drawn, "E": Grouped}


def source(name: str) -> str:
    """The lines to review. Raises ValueError for a name that is not in UNKNOWN."""
    if name not in UNKNOWN:
        raise ValueError(f"there is {', '.join(UNKNOWN)} to review; got {name!r}")
    return inspect.getsource(UNKNOWN[name])
