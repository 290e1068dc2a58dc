import torch
from torch import Tensor


def reorthogonalise(q: Tensor) -> Tensor:
    eye = torch.eye(q.size(-1))
    if (q.mT @ q).allclose(eye, atol=1e-4):
        pass
    else:
        q, _ = torch.linalg.qr(q)
    return q


def build():
    return reorthogonalise


def inputs(flip=False):
    return (torch.eye(3) * (3.0 if flip else 1.0),)
