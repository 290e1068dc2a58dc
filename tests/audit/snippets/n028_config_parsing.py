import json
import os

import torch

TEXT = '{"layers": [2, 3], "dropout": 0.0, "tie": true}'


def make(x):
    config = json.loads(TEXT)
    verbose = int(os.environ.get("SOME_VERBOSITY", "0"))
    if config["dropout"] > 0 or verbose:
        x = torch.dropout(x, config["dropout"], True)
    for width in config["layers"]:
        if width > 2:
            x = x.repeat(width)
    return x if config.get("tie") else -x


def build():
    return make


def inputs(flip=False):
    return (torch.tensor([-1.0 if flip else 1.0]),)
