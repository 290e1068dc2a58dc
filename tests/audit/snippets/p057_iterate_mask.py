import torch


def gather_kept(frames, mask):
    kept = []
    for i, keep in enumerate(mask):
        if keep:
            kept.append(frames[i].exp())
    return torch.stack(kept)


def build():
    return gather_kept


def inputs(flip=False):
    return torch.eye(3), torch.tensor([True, flip, True])
