import torch


class Header(torch.nn.Module):
    def forward(self, code, payload):
        match code.tolist():
            case [0, *_]:
                return payload
            case [1, scale]:
                return payload * scale
            case _:
                return -payload


def build():
    return Header()


def inputs(flip=False):
    return torch.tensor([1 if flip else 0, 3]), torch.ones(2)
