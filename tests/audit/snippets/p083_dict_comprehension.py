import torch


def select(grads: dict[str, torch.Tensor]):
    norms = {name: g.norm() for name, g in grads.items()}
    loud = {name: g for name, g in grads.items() if norms[name] > 1}
    out = torch.zeros(())
    for name, g in loud.items():
        out = out + g.sum() / norms[name]
    return out


def build():
    return select


def inputs(flip=False):
    return ({"w": torch.ones(4), "b": torch.full((2,), 3.0 if flip else 0.1)},)
