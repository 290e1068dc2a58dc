import torch


def resolve(rate, width):
    rate = float(rate)
    inner = int(width * rate)
    if inner % 8:
        inner = (inner + 7) // 8 * 8
    return bool(rate), inner


def widen(x, rate="1.5"):
    active, inner = resolve(rate, x.shape[-1])
    if active and inner > 4:
        return torch.nn.functional.pad(x, (0, inner - x.shape[-1]))
    return x


def build():
    return widen


def inputs(flip=False):
    return (torch.full((2, 3), -1.0 if flip else 1.0),)
