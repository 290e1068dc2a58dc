import torch

OPTIONS = {"clip": 2.0}


def trim(x):
    if (n := x.shape[-1]) > 2:
        x = x[..., : n - 1]
    if (clip := OPTIONS.get("clip")) and clip > 1:
        x = x.clamp(max=clip)
    while (k := x.numel()) > 8:
        x = x[: k // 2]
    return x


def build():
    return trim


def inputs(flip=False):
    return (torch.tensor([1.0, 5.0 if flip else 2.0, 3.0]),)
