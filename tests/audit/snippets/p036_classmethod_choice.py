import torch


class Quantiser:
    def __init__(self, levels):
        self.levels = levels

    @classmethod
    def for_range(cls, sample):
        spread = (sample.max() - sample.min()).item()
        if spread > 10:
            return cls(255)
        return cls(15)

    def __call__(self, x):
        return (x * self.levels).round() / self.levels


def quantise(x: torch.Tensor) -> torch.Tensor:
    return Quantiser.for_range(x)(x)


def build():
    return quantise


def inputs(flip=False):
    return (torch.tensor([0.123, 20.0 if flip else 0.5]),)
