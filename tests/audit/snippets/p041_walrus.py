import torch


def normalise(v, eps=1e-6):
    if (size := torch.linalg.vector_norm(v)) > eps:
        v = v / size
    return v


def build():
    return normalise


def inputs(flip=False):
    return (torch.zeros(3) if flip else torch.ones(3),)
