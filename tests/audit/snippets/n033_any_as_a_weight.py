import torch


def blended(x, mask):
    present = mask.any(-1, keepdim=True).to(x.dtype)
    weight = mask.all().float()
    biggest, where = x.max(-1, keepdim=True)
    return x * present + biggest * weight + where


def build():
    return blended


def inputs(flip=False):
    return torch.ones(2, 2), torch.tensor([[True, flip], [False, flip]])
