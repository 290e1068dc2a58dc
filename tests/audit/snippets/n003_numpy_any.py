import numpy as np
import torch


def jitter(x, seed=0):
    rng = np.random.default_rng(seed)
    draws = rng.normal(size=x.shape[0])
    if (draws > 2).any():
        draws = np.clip(draws, -2, 2)
    return x + torch.from_numpy(draws)


def build():
    return jitter


def inputs(flip=False):
    return (torch.tensor([1.0, -5.0 if flip else 5.0]),)
