import torch
from torch import nn


class Window(nn.Module):
    def __init__(self):
        super().__init__()
        self.local = nn.Linear(3, 3)
        self.wide = nn.Linear(3, 3)

    def forward(self, x, index=None, is_global=False):
        out = self.local(x)
        if is_global:
            out = out + self.wide(x * index.unsqueeze(-1)).sum(0)
        return out


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Window() for _ in range(2))

    def forward(self, x, mask):
        index = mask > 0
        is_global = index.flatten().any().item()
        for layer in self.layers:
            x = layer(x, index=index, is_global=is_global)
        return x


def build():
    torch.manual_seed(0)
    return Encoder()


def inputs(flip=False):
    return torch.ones(2, 3), torch.tensor([0, 1 if flip else 0])
