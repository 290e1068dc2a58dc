from dataclasses import dataclass

import torch
import torch.nn as nn


@dataclass
class Routed:
    tokens: torch.Tensor
    crowded: bool
    width: int


class Router(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.gate = nn.Linear(width, 2)
        nn.init.eye_(self.gate.weight)
        self.mix = nn.Linear(width, width)

    def route(self, x):
        load = self.gate(x).argmax(-1).bincount(minlength=2)
        return Routed(tokens=x, crowded=(load.max() > 6).item(), width=x.shape[-1])

    def forward(self, x):
        routed = self.route(x)
        if routed.width != 4:
            raise ValueError("four features are needed")
        if routed.crowded:
            return self.mix(routed.tokens)
        return routed.tokens


def build():
    torch.manual_seed(0)
    return Router()


def inputs(flip=False):
    x = torch.eye(4) * 3
    return (torch.cat([x, -x]) if not flip else torch.ones(8, 4),)
