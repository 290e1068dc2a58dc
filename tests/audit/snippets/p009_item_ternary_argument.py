import torch
import torch.nn.functional as F


class Temper(torch.nn.Module):
    def forward(self, logits):
        spread = logits.std()
        return F.softmax(logits / 2 if spread.item() > 3 else logits, dim=-1)


def build():
    return Temper()


def inputs(flip=False):
    return (torch.tensor([0.0, 1.0, 20.0 if flip else 2.0]),)
