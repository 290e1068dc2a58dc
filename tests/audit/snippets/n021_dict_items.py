import torch
from torch import nn


class Weighted(nn.Module):
    def __init__(self):
        super().__init__()
        self.weights = {"ce": 1.0, "dice": 0.0, "focal": 0.5}

    def forward(self, losses):
        total = 0.0
        for name, value in losses.items():
            weight = self.weights.get(name, 0.0)
            if weight == 0.0:
                continue
            total = total + weight * value
        if min(self.weights.values()) < 0:
            raise ValueError("negative weight")
        return total


def build():
    return Weighted()


def inputs(flip=False):
    return ({"ce": torch.tensor(-1.0 if flip else 1.0), "dice": torch.tensor(2.0)},)
