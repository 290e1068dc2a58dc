import torch
import torch.nn as nn


class Worst(nn.Module):
    def __init__(self):
        super().__init__()
        self.mae = nn.L1Loss()
        self.mse = nn.MSELoss()

    def forward(self, guess, target):
        hard = max(self.mae(guess, target), self.mse(guess, target))
        return hard.sqrt()


def build():
    return Worst()


def inputs(flip=False):
    return torch.full((3,), 3.0 if flip else 0.5), torch.zeros(3)
