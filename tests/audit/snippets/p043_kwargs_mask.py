import torch
import torch.nn as nn


class Attend(nn.Module):
    def forward(self, q, k, v, **extras):
        mask = extras.get("attention_mask")
        scores = q @ k.mT
        if mask is not None and not mask.all():
            scores = scores.masked_fill(~mask, float("-inf"))
        return scores.softmax(-1) @ v


def build():
    layer = Attend()
    return lambda q, mask: layer(q, q, q, attention_mask=mask)


def inputs(flip=False):
    return torch.eye(3), torch.tensor([True, True, not flip])
