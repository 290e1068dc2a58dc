"""Which device the lessons compute on: chosen once, in this one place."""

from __future__ import annotations

import functools
import os
from types import ModuleType

import torch

from recompute_lab.instruments.determinism import FIXED, WORKSPACE

VARIABLE = "FORWARD_TWICE_DEVICE"


@functools.cache
def lab_device() -> torch.device:
    """CUDA's current device where there is one that works, else the CPU; FORWARD_TWICE_DEVICE=cpu, or =cuda, decides.

    On CUDA it gives cuBLAS a fixed workspace (CUBLAS_WORKSPACE_CONFIG, unless that is set), without which torch's
    deterministic switch makes some products raise: torch reads the variable at the process's first product, and never
    again. Raises ValueError for another word in FORWARD_TWICE_DEVICE, RuntimeError for a device that does not work.
    """
    wanted = os.environ.get(VARIABLE, "").strip().lower()
    if not wanted:
        return torch.device("cpu" if not torch.cuda.is_available() or trouble(torch.device("cuda")) else "cuda")
    try:
        device = torch.device(wanted)
    except RuntimeError:
        hint = "without it, a GPU is used where one works"
        raise ValueError(f"{VARIABLE} is cpu or cuda, got {wanted!r}; {hint}.") from None
    if said := trouble(device):
        raise RuntimeError(f"{VARIABLE}={wanted}, but that device does not work here ({said}): unset it, or say cpu.")
    return device


def trouble(device: torch.device) -> str:
    """Why a small computation fails on a device, in one line; "" where it does not."""
    if device.type == "cuda":
        os.environ.setdefault(WORKSPACE, FIXED[0])
    try:
        rows = torch.arange(6.0).reshape(2, 3).to(device)
        product = (rows @ rows.T).tolist()
    except (RuntimeError, AssertionError, NotImplementedError) as error:  # a torch built without CUDA asserts
        return str(error).strip().splitlines()[0].rstrip(".")
    return "" if product == [[5.0, 14.0], [14.0, 50.0]] else f"a product came out as {product}"


def device_name(device: torch.device) -> str:
    """For the eye: "cpu", or "cuda (NVIDIA H200)"."""
    return f"{device} ({torch.cuda.get_device_name(device)})" if device.type == "cuda" else str(device)


def races_on(device: torch.device) -> bool:
    """May additions race each other there? On CUDA always; on a CPU where torch has two threads or more."""
    return device.type == "cuda" or device.type == "cpu" and torch.get_num_threads() > 1


def accelerator() -> ModuleType | None:
    """torch's module for the GPU in use, `torch.cuda` for one.

    None where there is none, where nothing has used it yet, or where it does not say so (Apple's).
    """
    if not torch.accelerator.is_available():
        return None
    module = torch.get_device_module(torch.accelerator.current_accelerator())
    return module if getattr(module, "is_initialized", bool)() else None
