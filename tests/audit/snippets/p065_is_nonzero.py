import torch


class Latch(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.pre = torch.nn.Softplus()

    def forward(self, x, gate):
        y = self.pre(x)
        while torch.is_nonzero(gate):
            y = self.pre(y)
            gate = gate - 1
        return y


def build():
    return Latch()


def inputs(flip=False):
    return torch.ones(2), torch.tensor([3 if flip else 1])
