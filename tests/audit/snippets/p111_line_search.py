import torch


def line_search(x, direction, objective, rounds=4):
    def closure(rate):
        moved = x + rate * direction
        return objective(moved)

    best = float(closure(0.0))
    rate = 1.0
    for _ in range(rounds):
        value = float(closure(rate))
        if value < best:
            break
        rate *= 0.5
    return x + rate * direction


def build():
    return line_search


def inputs(flip=False):
    return torch.ones(2), torch.full((2,), 3.0 if flip else -1.0), lambda x: x.pow(2).sum()
