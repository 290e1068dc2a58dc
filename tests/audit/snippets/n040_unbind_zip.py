import torch


def scan(xs, gates):
    state = torch.zeros_like(xs[0])
    outs = []
    for t, (x, g) in enumerate(zip(xs.unbind(0), gates.unbind(0), strict=True)):
        state = g * state + (1 - g) * x
        if t % 2 == 0:
            outs.append(state)
    for row in xs:
        outs.append(row)
    return torch.stack(outs)


def build():
    return scan


def inputs(flip=False):
    return torch.full((3, 2), -1.0 if flip else 1.0), torch.full((3, 2), 0.1 if flip else 0.9)
