import torch


class Column(list):
    def any(self):
        return any(bool(v) for v in self)

    def max(self):
        return max(self)

    def unique(self):
        return Column(dict.fromkeys(self))

    def tolist(self):
        return list(self)


def encode(column: Column, x: torch.Tensor) -> torch.Tensor:
    names = column.unique().tolist()
    if not column.any() or column.max() > 100:
        raise ValueError("empty column")
    if len(names) > 2:
        x = x.repeat(len(names))
    return x


def build():
    return lambda x: encode(Column([1, 2, 2, 3]), x)


def inputs(flip=False):
    return (torch.tensor([-1.0 if flip else 1.0]),)
