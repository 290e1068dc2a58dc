import numpy as np
import torch


def resample(x, rng=None):
    rng = rng or np.random.default_rng(0)
    noise = rng.normal(size=4)
    if noise.max() > 100:
        noise = noise / 100
    weights = torch.softmax(x, 0)
    if weights.max() > 0.9:
        weights = torch.full_like(weights, 0.25)
    return weights * torch.from_numpy(noise)


def build():
    return resample


def inputs(flip=False):
    return (torch.tensor([50.0 if flip else 0.0, 0.0, 0.0, 0.0], dtype=torch.float64),)
