import torch


def check(grads):
    return {name: (~torch.isfinite(grad)).any().float() for name, grad in grads.items()}


def step(weights, grads, lr=0.1):
    found_inf = check(grads)
    if sum(v.item() for v in found_inf.values()) == 0:
        weights = {name: weight - lr * grads[name] for name, weight in weights.items()}
    return weights


def build():
    return step


def inputs(flip=False):
    grad = torch.full((2,), float("inf") if flip else 1.0)
    return {"a": torch.ones(2)}, {"a": grad}
