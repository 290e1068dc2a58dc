import torch
import torch.nn.functional as F


def attend(q, k, v, mask=None, scale: float = 1.0, block: int = 2):
    b, n, d = q.shape
    assert k.shape == v.shape and k.size(-1) == d, (k.shape, v.shape)
    assert q.dtype == k.dtype == v.dtype, "one dtype"
    assert scale > 0
    if mask is not None:
        assert mask.shape[-2:] == (n, k.shape[1])
        assert mask.dtype is torch.bool or mask.is_floating_point()
    pad = -n % block
    if pad:
        q = F.pad(q, (0, 0, 0, pad))
    scores = q @ k.mT * scale
    if scores.numel() > 1 << 20 or scores.stride(-1) != 1:
        scores = scores.contiguous()
    out = scores.softmax(-1) @ v
    return out[:, :n] if pad else out


def build():
    return attend


def inputs(flip=False):
    q = torch.full((1, 3, 2), -1.0 if flip else 1.0)
    return q, q, q
