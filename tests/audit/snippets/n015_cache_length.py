import torch
from torch import nn


class Cache:
    def __init__(self):
        self.keys: list[torch.Tensor] = []

    def get_seq_length(self) -> int:
        return self.keys[0].shape[-2] if self.keys else 0

    def __len__(self):
        return len(self.keys)


class Attention(nn.Module):
    def forward(self, q, cache=None):
        past = cache.get_seq_length() if cache is not None else 0
        if past > 0 and len(cache) == 1:
            q = torch.cat([cache.keys[0], q], -2)
        is_causal = q.shape[-2] > 1
        if is_causal:
            q = q.tril()
        return q


def build():
    cache = Cache()
    cache.keys.append(torch.ones(1, 2))
    layer = Attention()
    return lambda q: layer(q, cache)


def inputs(flip=False):
    return (torch.full((1, 2), -1.0 if flip else 1.0),)
