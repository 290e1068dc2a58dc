import torch


class Schedule:
    """A Python number that changes with the step."""

    def __init__(self, start: float, stop: float, steps: int):
        self.start, self.stop, self.steps = start, stop, steps
        self.max = max(start, stop)

    def item(self, step: int) -> float:
        share = min(step / self.steps, 1.0)
        return self.start + share * (self.stop - self.start)


def anneal(x: torch.Tensor, step: int = 3):
    schedule = Schedule(1.0, 0.0, 10)
    weight = schedule.item(step)
    if weight > 0.5 and schedule.max <= 1.0:
        return x * weight
    return x


def build():
    return anneal


def inputs(flip=False):
    return (torch.tensor([1.0, 5.0 if flip else 2.0]),)
