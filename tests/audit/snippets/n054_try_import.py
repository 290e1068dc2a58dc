import importlib.util

import torch

HAS_FUSED = importlib.util.find_spec("a_package_nobody_has") is not None
NEW_ENOUGH = tuple(int(v) for v in torch.__version__.split("+")[0].split(".")[:2]) >= (2, 0)


def rms(x):
    if HAS_FUSED:
        raise NotImplementedError
    if NEW_ENOUGH and hasattr(torch.nn.functional, "rms_norm"):
        return torch.nn.functional.rms_norm(x, x.shape[-1:])
    return x / x.square().mean(-1, keepdim=True).sqrt()


def build():
    return rms


def inputs(flip=False):
    return (torch.tensor([1.0, 5.0 if flip else 2.0, 3.0]),)
