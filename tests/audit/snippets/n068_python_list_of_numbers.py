import torch
from torch import nn


class Pyramid(nn.Module):
    def __init__(self, weights=(1.0, 0.0, 0.5), mask=(True, False, True)):
        super().__init__()
        self.weights = list(weights)
        self.mask = list(mask)

    def forward(self, features: list[torch.Tensor]):
        total = torch.zeros_like(features[0])
        for weight, keep, feature in zip(self.weights, self.mask, features, strict=True):
            if not keep or weight == 0:
                continue
            total = total + weight * feature
        if any(self.mask) and sum(self.weights) > 1:
            total = total / sum(self.weights)
        return total


def build():
    return Pyramid()


def inputs(flip=False):
    return ([torch.full((1, 2), -1.0 if flip else 1.0)] * 3,)
