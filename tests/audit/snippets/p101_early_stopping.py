import torch
from torch import nn


class Keeper:
    def __init__(self, patience=2):
        self.best = None
        self.bad = 0
        self.patience = patience

    def update(self, loss, *, improved):
        if improved:
            self.best = loss
            self.bad = 0
        else:
            self.bad += 1
        return self.bad > self.patience


class Fit(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(3, 1)

    def epoch(self, x, y):
        return (self.lin(x) - y).pow(2).mean()


def run(fit, keeper, x, y):
    loss = fit.epoch(x, y)
    reference = 1.0 if keeper.best is None else keeper.best
    return keeper.update(loss.item(), improved=bool(loss < reference))


def build():
    torch.manual_seed(0)
    fit = Fit()

    def once(x, y):
        fresh = Keeper()
        return run(fit, fresh, x, y)

    return once


def inputs(flip=False):
    return torch.zeros(2, 3), torch.full((2, 1), -0.4 if flip else 1.5)
