import numpy as np
import torch


def scrub(x, fill=0.0):
    bad = torch.isnan(x).cpu().numpy()
    where = np.flatnonzero(bad)
    if bad.any():
        x = torch.nan_to_num(x, nan=fill)
    if where.size > 2:
        x = x * 0.5
    return x


def build():
    return scrub


def inputs(flip=False):
    return (torch.full((4,), float("nan") if flip else 1.0),)
