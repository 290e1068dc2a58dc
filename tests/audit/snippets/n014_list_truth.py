import torch
import torch.nn as nn


class DenseBlock(nn.Module):
    def __init__(self, depth=3):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(2, 2) for _ in range(depth))

    def forward(self, x, skips=()):
        outputs = []
        for layer in self.layers:
            if outputs:
                x = x + outputs[-1]
            outputs.append(layer(x))
        if not skips and len(outputs) > 2:
            outputs = outputs[1:]
        while len(outputs) > 1:
            last = outputs.pop()
            outputs[-1] = outputs[-1] + last
        return outputs[0]


def build():
    torch.manual_seed(0)
    return DenseBlock()


def inputs(flip=False):
    return (torch.full((1, 2), -1.0 if flip else 1.0),)
