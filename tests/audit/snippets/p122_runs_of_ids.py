import itertools

import torch


def by_document(x, ids):
    parts, start = [], 0
    for _, run in itertools.groupby(ids.tolist()):
        length = len(list(run))
        parts.append(x[start : start + length].softmax(0))
        start += length
    return torch.cat(parts)


def build():
    return by_document


def inputs(flip=False):
    return torch.ones(4), torch.tensor([0, 0, 1, 1 if not flip else 2])
