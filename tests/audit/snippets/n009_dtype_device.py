import torch


def upcast(x):
    work = torch.float32 if x.dtype in (torch.float16, torch.bfloat16) else x.dtype
    if x.is_cuda and x.device.type == "cuda":
        torch.cuda.synchronize()
    if x.requires_grad and x.is_leaf:
        x = x * 1
    if x.is_floating_point() and not x.is_sparse and x.is_contiguous():
        x = x.to(work)
    return x if torch.is_tensor(x) else torch.tensor(x)


def build():
    return upcast


def inputs(flip=False):
    return (torch.full((4,), -1.0 if flip else 1.0),)
