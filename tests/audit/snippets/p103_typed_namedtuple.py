from typing import NamedTuple

import torch
from torch import nn


class Routed(NamedTuple):
    tokens: torch.Tensor
    overflow: torch.Tensor
    width: int


class Router(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(4, 2)

    def route(self, x):
        load = self.gate(x).argmax(-1)
        return Routed(x, load.sum() > 3, x.shape[-1])

    def forward(self, x):
        routed = self.route(x)
        if routed.width != 4:
            return x
        if routed.overflow:
            return routed.tokens.relu()
        return routed.tokens


def build():
    torch.manual_seed(0)
    router = Router()
    with torch.no_grad():
        router.gate.weight.copy_(torch.tensor([[1.0, 0, 0, 0], [-1.0, 0, 0, 0]]))
        router.gate.bias.zero_()
    return router


def inputs(flip=False):
    return (torch.full((6, 4), -1.0 if flip else 1.0),)
