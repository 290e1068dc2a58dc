import numpy
import torch


def balance(load: torch.Tensor, x: torch.Tensor):
    shares = numpy.asarray(load) / float(load.sum())
    lopsided = bool((shares > 0.8).any())
    return x.flip(0) if lopsided else x


def build():
    return balance


def inputs(flip=False):
    return torch.tensor([9.0, 1.0]) if flip else torch.tensor([5.0, 5.0]), torch.arange(2.0)
