import json

import torch

TEXT = '{"mean": 0.5, "std": 2.0, "bins": [1, 2, 3], "on": true, "limits": {"max": 3.0, "min": -3.0}}'


def normalise(x: torch.Tensor, stats: dict):
    mean, std = stats["mean"], stats.get("std", 1.0)
    if std > 0 and stats["on"]:
        x = (x - mean) / std
    limits = stats["limits"]
    if limits["max"] > abs(limits["min"]) or len(stats["bins"]) > 5:
        x = x.clamp(limits["min"], limits["max"])
    if sum(stats["bins"]) % 2 == 0:
        x = x + max(stats["bins"])
    return x


def build():
    stats = json.loads(TEXT)
    return lambda x: normalise(x, stats)


def inputs(flip=False):
    return (torch.full((2,), -1.0 if flip else 1.0),)
