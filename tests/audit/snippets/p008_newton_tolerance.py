import torch


def newton_sqrt(a, tol=1e-5):
    guess = torch.ones_like(a)
    residual = (guess * guess - a).abs().max()
    while residual > tol:
        guess = 0.5 * (guess + a / guess)
        residual = (guess * guess - a).abs().max()
    return guess


def build():
    return newton_sqrt


def inputs(flip=False):
    return (torch.tensor([1.0, 9.0 if flip else 1.0], dtype=torch.float64),)
