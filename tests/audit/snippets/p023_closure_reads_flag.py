import torch


def step(x):
    steep = x.diff().abs().max() > 1

    def smooth(y):
        if steep:
            y = (y[1:] + y[:-1]) / 2
        return y

    return smooth(x) * 3


def build():
    return step


def inputs(flip=False):
    return (torch.tensor([0.0, 5.0 if flip else 0.5, 1.0]),)
