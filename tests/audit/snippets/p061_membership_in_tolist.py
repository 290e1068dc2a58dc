import torch

EOS = 2


def cut(logits: torch.Tensor, tokens: torch.Tensor):
    seen = tokens.tolist()
    if EOS in seen:
        logits = logits[: seen.index(EOS) + 1]
    return logits.softmax(-1)


def build():
    return cut


def inputs(flip=False):
    return torch.zeros(4, 3), torch.tensor([0, 1, 2 if flip else 1, 0])
