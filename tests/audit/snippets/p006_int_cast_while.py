import torch


def halve_until_fits(x, budget):
    left = int(budget)
    while left > 1:
        x = torch.nn.functional.avg_pool1d(x, 2)
        left = left // 2
    return x


def build():
    return halve_until_fits


def inputs(flip=False):
    return torch.ones(1, 1, 16), torch.tensor(8 if flip else 2)
