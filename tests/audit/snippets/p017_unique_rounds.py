import torch


def per_group_centre(x, group):
    out = x.clone()
    names = torch.unique(group)
    for k in range(len(names)):
        member = (group == names[k]).to(x.dtype)
        mean = (x * member).sum() / member.sum()
        out = out - mean * member
    return out


def build():
    return per_group_centre


def inputs(flip=False):
    return torch.arange(4.0), torch.tensor([0, 1, 2, 2]) if flip else torch.tensor([0, 0, 1, 1])
