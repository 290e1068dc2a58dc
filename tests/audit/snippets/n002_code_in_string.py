import torch

TEMPLATE = """
if mask.any().item():
    x = x.exp()
while loss > tol: pass
"""


def describe(x):
    if "mask.any()" in TEMPLATE:
        return x + len(TEMPLATE)
    return x


def build():
    return describe


def inputs(flip=False):
    return (torch.tensor([1.0, -5.0 if flip else 5.0]),)
