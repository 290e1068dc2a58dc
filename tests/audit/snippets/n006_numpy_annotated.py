import numpy as np
import torch


def weights_for(labels: np.ndarray) -> torch.Tensor:
    counts = np.bincount(labels)
    if (counts == 0).any() or counts.max() > 10 * counts.min():
        counts = counts + 1
    return torch.as_tensor(counts.sum() / counts, dtype=torch.float32)


def build():
    labels = np.array([0, 1, 1, 3])
    return lambda x: x * weights_for(labels)


def inputs(flip=False):
    return (torch.full((4,), -1.0 if flip else 1.0),)
