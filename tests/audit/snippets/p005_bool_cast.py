import torch


def settle(energy: torch.Tensor, state: torch.Tensor):
    if bool(energy < 0):
        state = state.neg()
    return state * energy


def build():
    return settle


def inputs(flip=False):
    return torch.tensor(-1.0 if flip else 1.0), torch.ones(3)
