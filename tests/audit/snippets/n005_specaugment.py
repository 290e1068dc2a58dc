import numpy as np
import torch


def span_mask(shape, prob, length, min_masks=0):
    batch, time = shape
    count = int(prob * time / float(length) + np.random.RandomState(0).rand())
    count = max(count, min_masks)
    mask = np.zeros((batch, time), dtype=bool)
    for row in range(batch):
        starts = np.random.RandomState(row).choice(time - length, count, replace=False)
        if len(starts) == 0:
            continue
        for start in starts:
            mask[row, start : start + length] = True
    if mask.sum() == 0:
        return None
    return mask


def augment(x):
    mask = span_mask(x.shape, 0.5, 2)
    if mask is None:
        return x
    return torch.where(torch.from_numpy(mask), torch.zeros_like(x), x)


def build():
    return augment


def inputs(flip=False):
    return (torch.full((2, 8), -1.0 if flip else 1.0),)
