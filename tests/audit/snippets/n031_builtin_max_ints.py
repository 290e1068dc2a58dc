import torch


def stack_padded(tensors):
    longest = max(t.shape[0] for t in tensors)
    order = sorted(range(len(tensors)), key=lambda i: tensors[i].shape[0])
    rows = []
    for i in order:
        gap = longest - tensors[i].shape[0]
        rows.append(torch.nn.functional.pad(tensors[i], (0, gap)) if gap else tensors[i])
    if any(t.dim() > 1 for t in tensors) or all(t.shape[0] == longest for t in tensors):
        return torch.cat(rows)
    return torch.stack(rows)


def build():
    return lambda x: stack_padded([x, x[:2], x[:1]])


def inputs(flip=False):
    return (torch.tensor([1.0, 5.0 if flip else 2.0, 3.0]),)
