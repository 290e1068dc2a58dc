import torch


def snap(angle):
    turns = round(angle.item() / 90.0) % 4
    if turns == 0:
        return lambda image: image
    return lambda image: torch.rot90(image, turns, (0, 1))


def build():
    return lambda angle, image: snap(angle)(image)


def inputs(flip=False):
    return torch.tensor(91.0 if flip else 3.0), torch.eye(2)
