import math

import torch


def renormalise(probabilities: torch.Tensor):
    total = float(probabilities.sum())
    if not math.isclose(total, 1.0, abs_tol=1e-4):
        probabilities = probabilities / probabilities.sum()
    return probabilities


def build():
    return renormalise


def inputs(flip=False):
    return (torch.tensor([0.5, 2.5 if flip else 0.5]),)
