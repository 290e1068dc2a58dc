import torch
import torch.nn.functional as F
from torch import nn


class SoftMoE(nn.Module):
    def __init__(self, experts=2):
        super().__init__()
        self.gate = nn.Linear(2, experts)
        self.experts = nn.ModuleList(nn.Linear(2, 2) for _ in range(experts))

    def forward(self, x):
        weights = F.one_hot(self.gate(x).argmax(-1), len(self.experts)).to(x.dtype)
        out = torch.zeros_like(x)
        for e, expert in enumerate(self.experts):
            out = out + weights[:, e : e + 1] * expert(x)
        assert out.shape == x.shape
        return out


def build():
    torch.manual_seed(0)
    return SoftMoE()


def inputs(flip=False):
    return (torch.tensor([[1.0, -5.0 if flip else 2.0]]),)
