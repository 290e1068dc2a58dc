import torch as th
from torch import count_nonzero as nnz


def sparsify(w: th.Tensor):
    if nnz(w) > w.numel() // 2:
        w = th.nn.functional.hardshrink(w, 0.5)
    return w @ w.T


def build():
    return sparsify


def inputs(flip=False):
    return (th.zeros(2, 2) if flip else th.ones(2, 2),)
