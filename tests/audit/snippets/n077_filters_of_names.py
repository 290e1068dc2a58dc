import torch
from torch import nn


def decayed(model: nn.Module, skip=("bias",)):
    named = [(n, p) for n, p in model.named_parameters() if p.requires_grad and p.dim() > 1]
    plain = {n: p for n, p in model.named_parameters() if any(s in n for s in skip)}
    layers = [m for m in model.modules() if isinstance(m, nn.Linear) and m.bias is not None]
    return [p for n, p in named if n not in plain], len(layers)


def build():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 1))

    def run(x):
        chosen, count = decayed(net)
        penalty = sum(p.pow(2).sum() for p in chosen)
        return net(x) + penalty if count > 1 else net(x)

    return run


def inputs(flip=False):
    return (torch.full((2,), -1.0 if flip else 1.0),)
