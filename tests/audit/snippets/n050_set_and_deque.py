from collections import Counter, OrderedDict, deque

import torch


def ops(names):
    counts = Counter(names)
    most, times = counts.most_common(1)[0]
    window = deque(names, maxlen=2)
    ordered = OrderedDict(sorted(counts.items()))
    if times > 1 and window.count(most) < len(ordered):
        return most
    return None


def run(x):
    name = ops(["sin", "sin", "cos"])
    if name:
        x = getattr(x, name)()
    return x


def build():
    return run


def inputs(flip=False):
    return (torch.tensor([-1.0 if flip else 1.0]),)
