from pathlib import Path

import torch


def checkpoint_name(path: str, x):
    where = Path(path)
    stem, *rest = where.name.split(".")
    if where.suffix and where.parent.name and rest:
        stem = stem.replace("-", "_")
    if stem.isnumeric() or stem.index("m") > 3:
        return x
    if where.stat().st_size if where.exists() else 0:
        return x * 2
    return x + len(stem)


def build():
    return lambda x: checkpoint_name("runs/model-7.pt", x)


def inputs(flip=False):
    return (torch.tensor([1.0, 5.0 if flip else 2.0]),)
