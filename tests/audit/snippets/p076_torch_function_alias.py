import torch

has_nan = torch.isnan
reduce_any = torch.any


def patch(x, fill=0.0):
    holes = has_nan(x)
    if reduce_any(holes):
        x = torch.where(holes, torch.full_like(x, fill), x)
    return x.cumsum(-1)


def build():
    return patch


def inputs(flip=False):
    return (torch.tensor([1.0, float("nan") if flip else 2.0]),)
