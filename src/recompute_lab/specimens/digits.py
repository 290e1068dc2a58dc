"""scikit-learn's handwritten digits, as images and as sequences. The package ships them; nothing is downloaded."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from pathlib import Path

import torch


@cache
def digit_images() -> tuple[torch.Tensor, torch.Tensor]:
    """All 1,797 digits: images [1797, 1, 8, 8], float32 in 0 to 1, and labels [1797], int64.

    Source: E. Alpaydin and C. Kaynak, Optical Recognition of Handwritten Digits, UCI, 1998, as in sklearn.datasets.
    """
    pixels, labels = _table()
    return pixels.view(-1, 1, 8, 8) / 16, labels


def _table() -> tuple[torch.Tensor, torch.Tensor]:
    """Pixels, [1797, 64], float32 in 0 to 16, and labels, [1797], int64."""
    package = find_spec("sklearn")  # found, not imported: that takes as long as many a lesson's longest cell
    file = Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz" if package else Path()
    if file.is_file():
        import numpy

        table = torch.as_tensor(numpy.loadtxt(file, delimiter=",", dtype=numpy.int64))
        return table[:, :-1].float(), table[:, -1].contiguous()
    from sklearn.datasets import load_digits  # the file's place is not promised; this function is

    digits = load_digits()
    return torch.as_tensor(digits.data, dtype=torch.float32), torch.as_tensor(digits.target)


@cache
def digit_sequences() -> tuple[torch.Tensor, torch.Tensor]:
    """All 1,797 digits: patches [1797, 16, 4], float32 in 0 to 1, and labels [1797], int64.

    A sequence is an image of `digit_images` cut into 16 patches of 2 x 2, row by row.
    """
    images, labels = digit_images()
    patches = images.view(-1, 4, 2, 4, 2).permute(0, 1, 3, 2, 4).reshape(-1, 16, 4)
    return patches, labels
