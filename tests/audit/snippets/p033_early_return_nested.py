import torch


def whiten(x):
    cov = x.mT @ x / x.shape[0]
    try:
        det = torch.linalg.det(cov)
        if det.abs() < 1e-6:
            return x
        root = torch.linalg.cholesky(torch.linalg.inv(cov))
    except torch.linalg.LinAlgError:
        return x
    return x @ root


def build():
    return whiten


def inputs(flip=False):
    return (torch.ones(3, 2) if flip else torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]),)
