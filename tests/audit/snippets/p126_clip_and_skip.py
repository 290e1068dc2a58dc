import math

import torch
from torch import nn


def step(model, x, most=5.0):
    loss = model(x).pow(2).mean()
    grads = torch.autograd.grad(loss, list(model.parameters()))
    for parameter, grad in zip(model.parameters(), grads, strict=True):
        parameter.grad = grad
    norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    if not math.isfinite(norm):
        return loss * 0
    with torch.no_grad():
        scale = 0.1 if norm > most else 1.0
    return loss * scale


def build():
    def run(x):
        torch.manual_seed(0)
        return step(nn.Linear(2, 1), x)

    return run


def inputs(flip=False):
    return (torch.full((2, 2), 100.0 if flip else 1.0),)
