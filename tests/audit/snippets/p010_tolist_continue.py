import torch


def ragged_sum(values, lengths):
    rows = []
    for row, length in zip(values, lengths.tolist(), strict=True):
        if length == 0:
            continue
        rows.append(row[:length].sum())
    return torch.stack(rows)


def build():
    return ragged_sum


def inputs(flip=False):
    return torch.ones(3, 4), torch.tensor([2, 0 if flip else 1, 4])
