"""One number for all the bits of a tensor."""

from __future__ import annotations

import torch

_PLAIN = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)
_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64, 16: torch.int64}


def digest_of(tensor: torch.Tensor) -> torch.Tensor | None:
    """A number (float64, no dimensions, on the tensor's device) that differs where bits do, or their order, but for
    coincidences: equal digests are evidence, not proof. None for a tensor whose values cannot be had.
    """
    if tensor.is_meta or tensor.layout is not torch.strided or tensor.is_quantized or type(tensor) not in _PLAIN:
        return None
    with torch.no_grad():
        flat = tensor.detach().resolve_conj().resolve_neg().reshape(-1).contiguous()
        if flat.is_complex():
            flat = torch.view_as_real(flat).reshape(-1)
        bits = flat.view(_BITS[flat.element_size()]).to(torch.float64)
        weights = torch.arange(1, bits.numel() + 1, dtype=torch.float64, device=bits.device).sin_()
        return (bits * weights).sum() + bits.sum()
