import numpy as np
import torch


class Log:
    def __init__(self):
        self.values = {"loss": [0.5, 0.4, 0.45], "accuracy": [0.8]}

    def latest(self, name):
        return np.mean(self.values[name][-2:])

    def best(self):
        values = np.asarray(self.values["loss"])
        return values.min(), int(values.argmin())


def anneal(x: torch.Tensor, log: Log):
    low, where = log.best()
    if log.latest("loss") > low and where < 2:
        x = x * 0.5
    if np.any(np.diff(log.values["loss"]) > 0):
        x = x + 1
    return x


def build():
    log = Log()
    return lambda x: anneal(x, log)


def inputs(flip=False):
    return (torch.full((2,), -1.0 if flip else 1.0),)
