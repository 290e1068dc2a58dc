import math
import time

import torch


def cosine(step: int, total: int, warm: int = 2) -> float:
    if step < warm:
        return step / warm
    share = (step - warm) / max(1, total - warm)
    return max(0.0, 0.5 * (1 + math.cos(math.pi * share)))


def train_step(x, step: int = 5):
    start = time.monotonic()
    rate = cosine(step, 10)
    if math.isfinite(rate) and rate > 0:
        x = x - rate
    if time.monotonic() - start > 1e6:
        raise TimeoutError
    return x


def build():
    return train_step


def inputs(flip=False):
    return (torch.full((1, 3), -1.0 if flip else 1.0),)
