import torch
from torch import nn


def freeze(model: nn.Module, prefix: str):
    hit = 0
    for name, parameter in model.named_parameters():
        if name.startswith(prefix) and parameter.requires_grad:
            parameter.requires_grad_(False)
            hit += parameter.numel()
    missing = [k for k in model.state_dict() if k.split(".")[0] != prefix]
    if hit == 0 or not missing:
        raise ValueError("nothing to freeze")
    return hit


def build():
    def run(x):
        torch.manual_seed(0)
        model = nn.ModuleDict({"a": nn.Linear(2, 2), "b": nn.Linear(2, 2)})
        freeze(model, "a")
        return model["b"](model["a"](x))

    return run


def inputs(flip=False):
    return (torch.tensor([1.0, 5.0 if flip else 2.0]),)
