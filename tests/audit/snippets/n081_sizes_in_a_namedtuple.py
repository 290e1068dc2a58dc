from collections import namedtuple

import torch

Crop = namedtuple("Crop", "top left size name")


def crop_of(x, size=2):
    height, width = x.shape[-2:]
    return Crop((height - size) // 2, (width - size) // 2, size, "centre")


def cropped(x):
    crop = crop_of(x)
    if crop.name == "centre" and crop.top > 0:
        x = x[..., crop.top : crop.top + crop.size, :]
    if max(crop.left, 0) and crop.size == 2:
        x = x[..., crop.left : crop.left + crop.size]
    return x if any(crop[:2]) else -x


def build():
    return cropped


def inputs(flip=False):
    return (torch.full((4, 4), -1.0 if flip else 1.0),)
