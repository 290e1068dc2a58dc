import torch
from torch import nn


def fit(x, model, steps=2):
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    model.train()
    for step in range(steps):
        optimiser.zero_grad(set_to_none=True)
        loss = model(x).square().mean()
        loss.backward()
        optimiser.step()
        if step == steps - 1:
            model.eval()
    return loss.detach()


def build():
    torch.manual_seed(0)
    return lambda x: fit(x, nn.Linear(2, 1))


def inputs(flip=False):
    return (torch.full((2, 2), -1.0 if flip else 1.0),)
