import torch
from torch import nn


def count(model: nn.Module):
    seen = set()
    total = 0
    for module in model.modules():
        for _, parameter in module.named_parameters(recurse=False):
            if parameter in seen:
                continue
            seen.add(parameter)
            total += parameter.numel()
    return total


def groups(tensors: list[torch.Tensor]):
    index = {}
    for t in tensors:
        if t not in index:
            index[t] = len(index)
    return index


def build():
    net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))

    def run(x):
        found = groups([x, x, x * 2])
        return net(x) / count(net) * len(found)

    return run


def inputs(flip=False):
    return (torch.full((2,), -1.0 if flip else 1.0),)
