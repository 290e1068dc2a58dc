import torch
import torch.nn as nn


class HardNegatives(nn.Module):
    margin = 0.2

    def forward(self, distances):
        close = torch.masked_select(distances, distances < self.margin)
        return close.mean() if close.numel() else distances.new_zeros(())


def build():
    return HardNegatives()


def inputs(flip=False):
    return (torch.tensor([0.1 if flip else 0.5, 0.9]),)
