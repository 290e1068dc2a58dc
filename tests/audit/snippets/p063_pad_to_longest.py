import torch


def frame(x: torch.Tensor, lengths: torch.Tensor):
    longest = lengths.max().item()
    if longest < x.shape[1]:
        x = x[:, :longest]
    return x


def build():
    return frame


def inputs(flip=False):
    return torch.ones(2, 4), torch.tensor([2, 3 if flip else 4])
