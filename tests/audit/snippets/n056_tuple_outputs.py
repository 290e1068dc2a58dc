import torch
from torch import nn


class Head(nn.Module):
    def forward(self, x, return_dict=False):
        outputs = (x.mean(), x) if return_dict else (x.mean(),)
        loss = None
        for out in outputs:
            if isinstance(out, tuple):
                out = out[0]
            if out.dim() == 0 and loss is None:
                loss = out
        return ((loss,) + outputs[1:]) if loss is not None else outputs


def build():
    return Head()


def inputs(flip=False):
    return (torch.tensor([1.0, 5.0 if flip else 2.0, 3.0]),)
