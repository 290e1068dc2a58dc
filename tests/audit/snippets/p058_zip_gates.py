import torch
import torch.nn as nn


class SkipNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(3, 3) for _ in range(3))
        self.gate = nn.Linear(3, 3, bias=False)
        nn.init.eye_(self.gate.weight)

    def forward(self, x):
        gates = self.gate(x).mean(0).unbind()
        for layer, gate in zip(self.layers, gates, strict=True):
            if gate < 0:
                continue
            x = layer(x)
        return x


def build():
    torch.manual_seed(0)
    return SkipNet()


def inputs(flip=False):
    return (torch.tensor([[1.0, -1.0 if flip else 1.0, 1.0]]),)
