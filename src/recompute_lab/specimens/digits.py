"""scikit-learn's handwritten digits, as images and as sequences. The package ships them; nothing is downloaded."""

from __future__ import annotations

from functools import cache

import torch


@cache
def digit_images() -> tuple[torch.Tensor, torch.Tensor]:
    """All 1,797 digits: images [1797, 1, 8, 8], float32 in 0 to 1, and labels [1797], int64.

    Source: E. Alpaydin and C. Kaynak, Optical Recognition of Handwritten Digits, UCI, 1998, as in sklearn.datasets.
    """
    from sklearn.datasets import load_digits

    digits = load_digits()
    images = torch.as_tensor(digits.images, dtype=torch.float32) / 16
    return images[:, None].contiguous(), torch.as_tensor(digits.target)


@cache
def digit_sequences() -> tuple[torch.Tensor, torch.Tensor]:
    """All 1,797 digits: patches [1797, 16, 4], float32 in 0 to 1, and labels [1797], int64.

    A sequence is an image of `digit_images` cut into 16 patches of 2 x 2, row by row.
    """
    images, labels = digit_images()
    patches = images.view(-1, 4, 2, 4, 2).permute(0, 1, 3, 2, 4).reshape(-1, 16, 4)
    return patches, labels
