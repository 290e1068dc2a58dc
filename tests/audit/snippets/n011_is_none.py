import torch
import torch.nn as nn


class Optional(nn.Module):
    def __init__(self, bias=None):
        super().__init__()
        self.bias = bias
        self.lin = nn.Linear(2, 2, bias=False)

    def forward(self, x, mask=None, *, state=None):
        x = self.lin(x)
        if mask is not None:
            x = x * mask
        if self.bias is None or not isinstance(self.bias, torch.Tensor):
            return x
        if hasattr(self, "scale") and state is None:
            x = x * self.scale
        return x + self.bias if isinstance(x, torch.Tensor) else x


def build():
    torch.manual_seed(0)
    return Optional(torch.ones(2))


def inputs(flip=False):
    return torch.full((1, 2), -1.0 if flip else 1.0), torch.tensor([0.0, float(flip)])
