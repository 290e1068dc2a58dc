import torch


class Diffuse(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = torch.nn.Linear(3, 3)

    def forward(self, x, steps):
        for _ in range(int(steps)):
            x = x + 0.1 * self.lin(x)
        return x


def build():
    torch.manual_seed(0)
    return Diffuse()


def inputs(flip=False):
    return torch.ones(3), torch.tensor(4 if flip else 1)
