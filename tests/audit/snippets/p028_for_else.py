import torch


def line_search(loss_at, start: torch.Tensor, sizes=(1.0, 0.5, 0.25)):
    base = loss_at(start)
    for size in sizes:
        trial = start - size * start
        if loss_at(trial).item() < base.item() - 0.1:
            break
    else:
        trial = start * 2
    return trial


def build():
    return lambda x: line_search(lambda v: v.square().sum(), x)


def inputs(flip=False):
    return (torch.full((3,), 0.01 if flip else 2.0),)
