"""scikit-learn's handwritten digits as sequences. The package ships them; nothing is downloaded."""

from __future__ import annotations

from functools import cache

import torch


@cache
def digit_sequences() -> tuple[torch.Tensor, torch.Tensor]:
    """All 1,797 digits: patches [1797, 16, 4], float32 in 0 to 1, and labels [1797], int64.

    A sequence is an 8 x 8 image cut into 16 patches of 2 x 2, row by row.
    Source: E. Alpaydin and C. Kaynak, Optical Recognition of Handwritten Digits, UCI, 1998, as in sklearn.datasets.
    """
    from sklearn.datasets import load_digits

    digits = load_digits()
    images = torch.as_tensor(digits.images, dtype=torch.float32) / 16
    patches = images.view(-1, 4, 2, 4, 2).permute(0, 1, 3, 2, 4).reshape(-1, 16, 4)
    return patches, torch.as_tensor(digits.target)
