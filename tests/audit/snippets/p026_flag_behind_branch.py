import torch


def solve(matrix, rhs, rounds=5):
    x = torch.zeros_like(rhs)
    settled = False
    for _ in range(rounds):
        update = rhs - matrix @ x
        if torch.linalg.norm(update) < 1e-3:
            settled = True
            break
        x = x + 0.5 * update
    if not settled:
        x = torch.linalg.solve(matrix, rhs)
    return x


def build():
    return solve


def inputs(flip=False):
    return torch.eye(2), torch.ones(2) if flip else torch.zeros(2)
