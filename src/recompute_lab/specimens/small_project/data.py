"""Rows of tokens, made with NumPy and handed over to torch."""

import numpy as np
import torch

PAD = 0


def batch(config, seed: int = 0, rows: int = 8, shortest: int = 4) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens [rows, places], filled up with PAD, and labels [rows], both int64. A row has `shortest` tokens at least.

    Raises ValueError where a row would have none.
    """
    generator = np.random.default_rng(seed)
    lengths = generator.integers(shortest, config.places + 1, rows)
    if (lengths == 0).any():
        raise ValueError(f"every row needs a token; the shortest has {lengths.min()}: raise `shortest`")
    tokens = generator.integers(1, config.vocabulary, (rows, config.places))
    tokens[np.arange(config.places) >= lengths[:, None]] = PAD
    labels = tokens[:, 0] % config.classes
    if len(np.unique(labels)) == 1:
        labels[0] = (labels[0] + 1) % config.classes
    return torch.from_numpy(tokens), torch.from_numpy(labels)
