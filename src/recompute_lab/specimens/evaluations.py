"""Evaluations of a model of digits, and what is wrong with them. None raises, none logs a line.

Each is called as `evaluation(model, patches, labels)` and returns a dict of numbers. Three have a branch on a value
that rounding can flip, and a repair beside it; `noise`, a callable that takes a tensor and returns one like it, stages
such rounding at the value that is asked about. In the others something differs from run to run that has nothing to do
with rounding.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable

import torch
from torch.nn.functional import cross_entropy

Noise = Callable[[torch.Tensor], torch.Tensor]
SCALE = 12.0  # by which scores become logits: about what `calibrated` finds


def unchanged(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


def probabilities(model, patches: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return torch.softmax(SCALE * model(patches), 1)


# --- A branch that rounding flips: a threshold, an early exit, a filter


def level_of(model, patches: torch.Tensor, share: float = 0.85) -> float:
    """The confidence that this share of the digits reaches: one of the confidences, as every quantile is."""
    confidence = probabilities(model, patches).amax(1)
    return confidence.sort(descending=True).values[round(share * len(confidence)) - 1].item()


def selective(model, patches, labels, level: float, noise: Noise = unchanged) -> dict:
    """Accuracy on digits of which the model is confident; how many these are. A threshold."""
    confidence, predicted = probabilities(model, patches).max(1)
    answered = noise(confidence) >= level
    right = (predicted == labels)[answered]
    return {"accuracy": right.float().mean().item(), "answered": int(answered.sum())}


def selective_with_room(model, patches, labels, level: float, noise: Noise = unchanged) -> dict:
    """The same, with room for rounding below the level."""
    return selective(model, patches, labels, level - 1e-5, noise)


def calibrated(model, patches, labels, noise: Noise = unchanged) -> dict:
    """The calibration error with the best scale of the logits, which is sought until the loss falls no more. An early
    exit.
    """
    with torch.no_grad():
        scores = model(patches)
    scale, best, steps = scores.new_zeros(()).requires_grad_(), math.inf, 0  # the scale's logarithm
    while steps < 500:
        loss = noise(cross_entropy(scores * scale.exp(), labels))
        if loss >= best:
            break
        best = loss.item()
        (slope,) = torch.autograd.grad(loss, scale)
        scale = (scale - 0.5 * slope).detach().requires_grad_()
        steps += 1
    return {"error": _calibration_error(scores * scale.exp(), labels), "scale": scale.exp().item(), "steps": steps}


def calibrated_for(model, patches, labels, noise: Noise = unchanged, steps: int = 60) -> dict:
    """The same, with a number of steps that nothing decides."""
    with torch.no_grad():
        scores = model(patches)
    scale = scores.new_zeros(()).requires_grad_()
    for _ in range(steps):
        (slope,) = torch.autograd.grad(noise(cross_entropy(scores * scale.exp(), labels)), scale)
        scale = (scale - 0.5 * slope).detach().requires_grad_()
    return {"error": _calibration_error(scores * scale.exp(), labels), "scale": scale.exp().item(), "steps": steps}


def _calibration_error(logits: torch.Tensor, labels: torch.Tensor, bins: int = 15) -> float:
    """The expected calibration error: confidence against accuracy, in `bins` equal bins of confidence.

    Source: C. Guo et al., "On Calibration of Modern Neural Networks", ICML 2017.
    """
    confidence, predicted = torch.softmax(logits.detach(), 1).max(1)
    gap = confidence - (predicted == labels).float()
    place = (confidence * bins).long().clamp(max=bins - 1)
    return sum(abs(gap[place == b].sum().item()) for b in range(bins)) / len(labels)


def valid_only(model, patches, labels, noise: Noise = unchanged) -> dict:
    """Accuracy on digits whose probabilities are valid; how many these are. A filter."""
    p = probabilities(model, patches)
    valid = noise(p.sum(1)) <= 1
    right = (p.argmax(1) == labels)[valid]
    return {"accuracy": right.float().mean().item(), "counted": int(valid.sum())}


def valid_up_to_rounding(model, patches, labels, noise: Noise = unchanged) -> dict:
    """The same filter, which lets through what rounding makes of a sum of one."""
    p = probabilities(model, patches)
    valid = noise(p.sum(1)) <= 1 + 1e-5
    right = (p.argmax(1) == labels)[valid]
    return {"accuracy": right.float().mean().item(), "counted": int(valid.sum())}


# --- No branch: only last bits move, and no decision


def mean_loss(model, patches, labels, noise: Noise = unchanged) -> dict:
    """The mean loss, to its last bit, and the accuracy on all digits."""
    with torch.no_grad():
        logits = SCALE * model(patches)
    accuracy = (logits.argmax(1) == labels).float().mean().item()
    return {"loss": noise(cross_entropy(logits, labels)).item(), "accuracy": accuracy}


# --- What differs from run to run, deterministic algorithms or not


class OnSomeDigits:
    """Accuracy on 300 digits, drawn by a generator of its own: seeded when the harness is made, and never again."""

    def __init__(self, seed: int = 0):
        self.drawing = torch.Generator().manual_seed(seed)

    def __call__(self, model, patches, labels) -> dict:
        drawn = torch.randperm(len(patches), generator=self.drawing)[:300]
        p = probabilities(model, patches[drawn])
        right = p.argmax(1) == labels[drawn]
        return {"accuracy": right.float().mean().item(), "confidence": p.amax(1).mean().item()}


class Adapting:
    """Accuracy of scores from which a running mean of scores is taken away, which follows them batch by batch."""

    def __init__(self):
        self.mean = torch.zeros(10)

    def __call__(self, model, patches, labels) -> dict:
        right = 0
        for rows, wanted in zip(patches.split(100), labels.split(100), strict=True):
            with torch.no_grad():
                scores = model(rows)
            right += int(((scores - self.mean).argmax(1) == wanted).sum())
            self.mean = torch.lerp(self.mean, scores.mean(0), 0.1)
        return {"accuracy": right / len(labels), "drift": self.mean.norm().item()}


def in_full_batches(model, patches, labels, size: int = 256) -> dict:
    """Accuracy over full batches of requests that wait in a set, each under a name of its own; the rest is dropped."""
    requests = {uuid.uuid4(): row for row in range(len(patches))}
    waiting = set(requests)
    right = counted = 0
    confidence = 0.0
    while len(waiting) >= size:
        rows = [requests[waiting.pop()] for _ in range(size)]
        p = probabilities(model, patches[rows])
        right += int((p.argmax(1) == labels[rows]).sum())
        confidence += p.amax(1).sum().item()
        counted += size
    return {"accuracy": right / counted, "confidence": confidence / counted}
