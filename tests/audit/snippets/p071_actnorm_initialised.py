import torch
import torch.nn as nn


class ActNorm(nn.Module):
    def __init__(self, width=3):
        super().__init__()
        self.loc = nn.Parameter(torch.zeros(width))
        self.register_buffer("initialized", torch.tensor(0, dtype=torch.uint8))

    def forward(self, x, fresh):
        self.initialized.mul_(fresh)
        if self.initialized.item() == 0:
            with torch.no_grad():
                self.loc.data.copy_(-x.mean(0))
            self.initialized.fill_(1)
        return x + self.loc


def build():
    layer = ActNorm()
    layer.initialized.fill_(1)
    return layer


def inputs(flip=False):
    return torch.ones(2, 3), torch.tensor(0 if flip else 1, dtype=torch.uint8)
