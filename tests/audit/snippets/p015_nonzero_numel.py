import torch


class SparseAdd(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(5, 3)

    def forward(self, base, hits):
        places = hits.nonzero(as_tuple=False)
        if places.numel() == 0:
            return base
        return base.index_add(0, places[:, 0], self.table(places[:, 0]))


def build():
    torch.manual_seed(0)
    return SparseAdd()


def inputs(flip=False):
    return torch.zeros(5, 3), torch.tensor([0, 0, 1 if flip else 0, 0, 0])
