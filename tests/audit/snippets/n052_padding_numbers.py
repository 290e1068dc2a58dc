import math

import torch
import torch.nn.functional as F


def same_pad(x, kernel: int, stride: int):
    length = x.shape[-1]
    out = math.ceil(length / stride)
    need = max((out - 1) * stride + kernel - length, 0)
    if need > 0:
        left = need // 2
        x = F.pad(x, (left, need - left))
    return F.avg_pool1d(x, kernel, stride)


def build():
    return lambda x: same_pad(x, 3, 2)


def inputs(flip=False):
    return (torch.full((1, 1, 5), -1.0 if flip else 1.0),)
