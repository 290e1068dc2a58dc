import torch


def hardest_first(layers, losses, x):
    order = sorted(range(len(layers)), key=lambda i: -losses[i].item())
    for i in order:
        x = layers[i](x)
    return x


def build():
    return hardest_first


def inputs(flip=False):
    losses = torch.tensor([1.0, 2.0])
    return [torch.sin, torch.exp], losses.flip(0) if flip else losses, torch.ones(2)
