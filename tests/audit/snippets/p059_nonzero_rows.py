import torch


def paint(canvas, seeds):
    for r, c in seeds.nonzero():
        row = canvas[r] + c
        canvas = canvas * 0.5 + row * 0.5
    return canvas


def build():
    return paint


def inputs(flip=False):
    seeds = torch.zeros(3, 3)
    seeds[0, 1] = 1
    if flip:
        seeds[2, 2] = 1
    return torch.zeros(3, 3), seeds
