"""Small questions about tensors, asked from everywhere."""

import torch


def overflowed(x: torch.Tensor) -> bool:
    """True where x holds an infinity.

    `if overflowed(x):` reads better than `if torch.isinf(x).any():`
    """
    return bool(torch.isinf(x).any())


def rounds(amount) -> int:
    """How often to refine, for an amount of spread: once, and once more for every whole unit, thrice at most."""
    return min(1 + int(amount), 3)


def same_weights(one: torch.nn.Module, other: torch.nn.Module) -> bool:
    for a, b in zip(one.parameters(), other.parameters(), strict=True):
        if not torch.equal(a, b):
            return False
    return True
