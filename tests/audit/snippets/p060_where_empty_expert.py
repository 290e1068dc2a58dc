import torch
from torch import nn


class MoE(nn.Module):
    def __init__(self, experts=2):
        super().__init__()
        self.experts = nn.ModuleList(nn.Linear(2, 2) for _ in range(experts))

    def forward(self, x, choice):
        out = x.new_zeros(x.shape)
        for number, expert in enumerate(self.experts):
            (rows,) = torch.where(choice == number)
            if rows.shape[0] == 0:
                continue
            out = out.index_copy(0, rows, expert(x[rows]))
        return out


def build():
    torch.manual_seed(0)
    return MoE()


def inputs(flip=False):
    return torch.ones(3, 2), torch.tensor([0, 1, 0]) if flip else torch.tensor([0, 0, 0])
